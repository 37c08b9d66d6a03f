"""The probe against real forward passes with hooks placed by hand."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from layer_networks import Fixed, Forked, Reader, Remembering, Tokens
from torch import Tensor, nn
from torchvision import models

from hookscope.layers.modules import named_layers
from hookscope.layers.outputs import tensors_in
from hookscope.layers.probe import Probe, probe
from hookscope.layout import Layout


def observed(model: nn.Module, x: Tensor) -> tuple[list[tuple[str, int]], list[tuple[object, ...]]]:
    """Every call in order; every tensor with its shape and whether it changed afterwards."""
    order: list[tuple[str, int]] = []
    kept: list[tuple[str, int, tuple[object, ...], Tensor, Tensor]] = []
    calls: Counter[str] = Counter()
    handles = []
    for name, module in named_layers(model).items():

        def hook(module: nn.Module, args: object, output: object, name: str = name) -> None:
            calls[name] += 1
            order.append((name, calls[name]))
            for item, tensor in tensors_in(output):
                kept.append((name, calls[name], item, tensor, tensor.clone()))

        handles.append(module.register_forward_hook(hook))
    with torch.no_grad():
        model.eval()(x)
    for handle in handles:
        handle.remove()
    return order, [
        (name, call, item, tuple(copy.shape), not torch.equal(tensor, copy))
        for name, call, item, tensor, copy in kept
    ]


@pytest.mark.parametrize(
    ("model", "size"),
    [
        (models.resnet18(num_classes=7), (64, 96)),
        (models.vgg11_bn(num_classes=7), (32, 64)),
        (models.densenet121(num_classes=7), (64, 96)),
        (models.mobilenet_v3_small(num_classes=7), (64, 96)),
        (models.shufflenet_v2_x0_5(num_classes=7), (64, 96)),
        (models.googlenet(num_classes=7, init_weights=False), (64, 96)),
        (models.swin_v2_t(num_classes=7), (64, 96)),
        (models.VisionTransformer(32, 8, 2, 2, 16, 16), (32, 32)),
        (models.segmentation.lraspp_mobilenet_v3_large(weights_backbone=None), (64, 96)),
        (Reader(), (32, 64)),
        (Fixed(), (32, 32)),
        (Tokens(5, "class"), (32, 48)),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("want_default", [True, False])
def test_calls_order_shapes_and_overwriting_are_the_real_ones(
    model: nn.Module, size: tuple[int, int], want_default: bool
) -> None:
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            # Else what comes out of a ReLU passes through as it is, and no write changes it.
            module.running_mean.normal_()
    found = probe(model, size, want_default=want_default)
    order, tensors = observed(model, torch.randn(1, found.channels, *size))
    assert found.problem is None
    assert list(found.order) == order
    assert found.calls == dict(Counter(name for name, _ in order))
    seen = [
        (i.address.layer, i.address.call or 1, i.address.item, i.shape, i.overwritten)
        for i in found.tensors
    ]
    assert seen == tensors


def test_calls_are_numbered_where_there_are_several() -> None:
    found = probe(models.resnet18())
    names = [str(info.address) for info in found.tensors]
    assert "conv1" in names
    assert "layer1.0.relu@1" in names
    assert "layer1.0.relu@2" in names
    assert "layer1.0.relu" not in names
    assert [info.address.call for info in found.of("layer1.0.relu")] == [1, 2]


def test_layers_that_never_run_have_no_calls() -> None:
    found = probe(models.VisionTransformer(32, 8, 1, 2, 16, 16))
    assert "encoder.layers.encoder_layer_0.self_attention" in found.calls
    assert "encoder.layers.encoder_layer_0.self_attention.out_proj" not in found.calls
    train_only = probe(models.googlenet(num_classes=7, init_weights=False))
    assert not any(name.startswith("aux") for name in train_only.calls)


def layouts(found: Probe) -> dict[str, Layout]:
    return {str(info.address): info.layout for info in found.tensors}


def test_an_lstm_keeps_its_batch_behind_its_layers() -> None:
    found = layouts(probe(Reader()))
    assert found["lstm[0]"] == Layout("other")
    assert found["lstm[1][0]"] == Layout("other", batch_axis=1)
    assert found["stem"] == Layout("NCHW")


@pytest.mark.parametrize("prefix", [1, 5])
@pytest.mark.parametrize(("size", "grid"), [((64, 64), (8, 8)), ((64, 96), (8, 12))])
def test_tokens_of_any_grid_and_prefix(
    prefix: int, size: tuple[int, int], grid: tuple[int, int]
) -> None:
    found = layouts(probe(Tokens(prefix, "class"), size))
    assert found["blocks.0.norm1"] == Layout("tokens", prefix, grid)
    assert found["patches"] == Layout("NCHW")
    assert found["head"] == Layout("vector")


def test_a_swin_is_channels_last() -> None:
    found = layouts(probe(models.swin_t()))
    assert found["features.0.0"] == Layout("NCHW")
    assert found["features"] == Layout("NHWC")


def test_a_fixed_size_is_found_where_none_is_named() -> None:
    found = probe(nn.DataParallel(Fixed()))
    assert (found.input_size, found.channels, found.problem) == ((32, 32), 1, None)
    assert layouts(found)["second"] == Layout("NCHW")


def test_a_size_that_does_not_fit_is_a_problem_and_no_error() -> None:
    found = probe(Fixed(), (40, 40))
    assert found.problem is not None
    assert found.problem.startswith("the model stops at an input of 40x40: mat1 and mat2")
    assert "\n" not in found.problem
    # What ran is told all the same.
    assert [str(info.address) for info in found.tensors] == ["first", "second"]
    assert found.cam_default is None


def test_a_fork_that_hangs_on_data_is_taken_with_data() -> None:
    # The example is a grey of 0.5, so the mean is above 0.25.
    found = probe(Forked())
    assert set(found.calls) == {"stem", "bright", "head"}
    assert layouts(found)["stem"] == Layout("NCHW")


def test_without_data_the_likelier_fork_is_taken() -> None:
    found = probe(Forked().to("meta"))
    assert found.problem is None
    assert set(found.calls) == {"stem", "dark", "head"}


def test_numpy_inside_needs_data_and_gets_it() -> None:
    class Numpy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            scale = float(x.detach().numpy().max())
            return (x / scale).mean((2, 3))

    found = probe(Numpy())
    assert (found.problem, found.cam_default) == (None, "conv")
    assert layouts(found)["conv"] == Layout("NCHW")


def test_a_model_that_never_works_says_so_in_a_sentence() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("not\nyet")

    found = probe(Broken())
    assert found.problem == "the model stops at an input of 224x224: not"
    assert (found.tensors, found.order) == ((), ())


def test_in_place_writes_through_a_view_count() -> None:
    found = probe(Remembering())
    assert [info.overwritten for info in found.of("norm")] == [True]
    assert [info.overwritten for info in found.of("conv")] == [False]


def test_detection_runs_without_its_numbers() -> None:
    build = models.detection.fasterrcnn_mobilenet_v3_large_320_fpn
    found = probe(build(weights=None, weights_backbone=None))
    assert found.problem is None
    assert found.calls["roi_heads.box_predictor"] == 1
    boxes = found.of("roi_heads.box_head")[0]
    assert boxes.pictures == "folded"
    assert boxes.layout == Layout("other")
    assert layouts(found)["backbone.body.0"] == Layout("NCHW")


def test_an_exported_program_is_probed_at_its_own_size() -> None:
    model = models.resnet18(num_classes=3).eval()
    exported = torch.export.export(model, (torch.zeros(1, 3, 64, 64),))
    found = probe(torch.export.unflatten(exported), (64, 64))
    plain = probe(model, (64, 64))
    assert found.problem is None
    assert found.calls == plain.calls
    assert layouts(found)["layer4"] == Layout("NCHW")


def test_a_probe_is_quick_enough_to_stand_in_every_command() -> None:
    """Against a real pass of the same network in the same process, with room."""
    import time

    model, x = models.resnet18().eval(), torch.zeros(1, 3, 224, 224)

    def fastest(run: object) -> float:
        times = []
        for _ in range(5):
            start = time.thread_time()
            run()
            times.append(time.thread_time() - start)
        return min(times)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.no_grad():
            real = fastest(lambda: model(x))
        assert fastest(lambda: probe(model)) < 3 * real
    finally:
        torch.set_num_threads(threads)


class Odd(nn.Module):
    """Layers whose outputs meta tensors cannot have, or that hold nothing, before a usual one."""

    class Gives(nn.Module):
        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

        def forward(self, x: Tensor) -> Tensor:
            if self.what == "channels":
                return x[:, :0]
            if self.what == "rows":
                return x[:0]
            if self.what == "numpy":
                return x * float(x.detach().numpy().max())
            return x.to_sparse()

    def __init__(self, what: str) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.odd = self.Gives(what)
        self.later = nn.ReLU()
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        self.odd(x)
        return self.head(self.later(x).mean((2, 3)))


@pytest.mark.parametrize("what", ["channels", "rows", "sparse", "numpy"])
def test_an_odd_tensor_takes_no_later_layer_along(what: str) -> None:
    # 19 x 19 maps of a 21 x 21 picture: only a pass at another size tells that they are spatial.
    found = probe(Odd(what), (21, 21))
    assert (found.problem, found.cam_default) == (None, "later")
    assert layouts(found)["later"] == Layout("NCHW")
    assert layouts(found)["head"].kind == "vector"
    assert [info.shape for info in found.of("later")] == [(1, 4, 19, 19)]


class Gated(nn.Module):
    """Which layer runs hangs on a weight, which a pass without data cannot know."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.ones(()))
        self.deep, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return (self.deep if self.gate > 0 else self.other)(x).mean((2, 3))


def test_layouts_come_from_the_pass_that_took_the_right_branch():
    found = probe(Gated().eval())
    assert found.order == (("deep", 1),)
    assert found.tensors[0].layout.kind == "NCHW"
    assert found.cam_default == "deep"
