"""A user's model, in whatever state and context: the right maps, and all of it left as it was."""

from __future__ import annotations

import threading

import pytest
import torch
from small_network import Small, pictures, small
from torch import Tensor, nn

from hookscope.gradcam import Heatmap, explain, gradcam
from hookscope.maps import cam


@pytest.fixture
def model() -> Small:
    return small()


@pytest.fixture
def x() -> Tensor:
    return pictures()


class TestTheModelIsLeftAsItWas:
    def snapshot(self, model: nn.Module) -> list[object]:
        return [
            [(name, module.training) for name, module in model.named_modules()],
            [parameter.requires_grad for parameter in model.parameters()],
            [parameter.grad is None for parameter in model.parameters()],
            [len(module._forward_hooks) for module in model.modules()],
            [len(module._backward_hooks) for module in model.modules()],
            {name: tensor.clone() for name, tensor in model.state_dict().items()},
            torch.get_rng_state(),
            torch.is_grad_enabled(),
        ]

    def assert_same(self, before: list[object], after: list[object]) -> None:
        assert before[:5] == after[:5]
        assert all(torch.equal(before[5][name], after[5][name]) for name in before[5])
        assert torch.equal(before[6], after[6])
        assert before[7] == after[7]

    @pytest.mark.parametrize("method", cam.NAMES)
    @pytest.mark.parametrize("fails", [False, True])
    def test_in_train_mode_with_mixed_flags(self, model, x, method, fails):
        expected = gradcam(model, x, "conv", 1, method)
        model.train()
        model.stem.eval()
        model.last.requires_grad_(False)
        model.head.weight.grad = torch.ones_like(model.head.weight)
        before = self.snapshot(model)
        if fails:
            with pytest.raises(RuntimeError):
                gradcam(model, x[:, :2], "conv", 1, method)
        else:
            # Evaluated in eval mode all the same: no dropout, the running statistics.
            torch.testing.assert_close(gradcam(model, x, "conv", 1, method), expected)
        self.assert_same(before, self.snapshot(model))

    def test_the_picture_is_not_touched(self, x):
        model = nn.Sequential(nn.ReLU(inplace=True), small()).eval()
        before = x.clone()
        for method in cam.NAMES:
            gradcam(model, x, "1.last", 1, method)
        assert torch.equal(x, before)

    def test_random_layers_do_not_move_the_global_state(self, x):
        class Random(Small):
            def forward(self, x: Tensor) -> object:
                return super().forward(x + torch.randn_like(x))

        model = Random().eval()
        before = torch.get_rng_state()
        gradcam(model, x, "last")
        assert torch.equal(before, torch.get_rng_state())


class TestCallersContext:
    def test_frozen_parameters(self, model, x):
        expected = gradcam(model, x, "last", 1)
        model.requires_grad_(False)
        torch.testing.assert_close(gradcam(model, x, "last", 1), expected)

    @pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
    def test_grad_modes_around_the_call(self, model, x, context):
        expected = gradcam(model, x, "last", 1)
        with context():
            found = gradcam(model, x.clone(), "last", 1)
        torch.testing.assert_close(found, expected)

    def test_a_picture_that_asks_for_gradients(self, model, x):
        expected = gradcam(model, x, "last", 1)
        found = gradcam(model, x.clone().requires_grad_(), "last", 1)
        assert torch.equal(found, expected)

    def test_a_backbone_that_switches_gradients_off(self, model, x):
        class Frozen(Small):
            def forward(self, x: Tensor) -> object:
                with torch.no_grad():
                    low = self.conv(self.stem(x))
                out = self.relu(self.last(self.relu(low)))
                return self.head(nn.functional.adaptive_avg_pool2d(out, (3, 4)).flatten(1))

        frozen = Frozen().eval()
        frozen.load_state_dict(model.state_dict())
        torch.testing.assert_close(
            gradcam(frozen, x, "stem", 1), gradcam(model, x, "stem", 1), rtol=1e-4, atol=1e-7
        )

    def test_data_parallel(self, model, x):
        wrapped = nn.DataParallel(model)
        assert torch.equal(gradcam(wrapped, x, "last", 1), gradcam(model, x, "last", 1))

    def test_compiled_models(self, model, x):
        expected = gradcam(model, x, "last", 1)
        compiled = torch.compile(model, backend="eager")
        with torch.no_grad():
            compiled(x)
        torch.testing.assert_close(gradcam(compiled, x, "last", 1), expected)
        inside = small()
        inside.last = torch.compile(inside.last, backend="eager")
        inside.stem.compile(backend="eager")
        with torch.no_grad():
            inside(x)
        torch.testing.assert_close(gradcam(inside, x, "last", 1), expected)
        torch.testing.assert_close(gradcam(inside, x, "stem", 1), gradcam(model, x, "stem", 1))

    @pytest.mark.parametrize("precision", ["bf16", "fp16"])
    @pytest.mark.parametrize("method", cam.NAMES)
    def test_reduced_precision_is_close_and_maps_are_fp32(self, model, x, precision, method):
        def at(precision: str) -> Heatmap:
            return explain(
                model, x, layers=["relu@2"], classes=[1], methods=[method], precision=precision
            )[0][0]

        exact, found = at("fp32"), at(precision)
        assert found.map.dtype == torch.float32
        if method in ("xgradcam", "ablationcam", "eigencam"):
            return  # small differences of scores or of sums near zero: the type is the promise
        difference = (found.map - exact.map).abs().max() / exact.map.max()
        assert difference < 0.1

    def test_several_threads_on_replicas_that_share_parameters(self, x):
        model = small()
        replicas = [small() for _ in range(3)]
        for replica in replicas:
            for name, parameter in model.named_parameters():
                owner, _, leaf = name.rpartition(".")
                setattr(replica.get_submodule(owner), leaf, parameter)
        layers = ["stem", "relu", "last"]
        expected = explain(model, x, layers=layers, top_k=2)
        found: dict[int, list[object]] = {}

        def work(place: int) -> None:
            found[place] = [explain(replicas[place], x, layers=layers, top_k=2) for _ in range(15)]

        threads = [threading.Thread(target=work, args=(place,)) for place in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for results in found.values():
            for result in results:
                for heatmaps, wanted in zip(result, expected, strict=True):
                    for one, other in zip(heatmaps, wanted, strict=True):
                        assert one.address == other.address
                        torch.testing.assert_close(one.map, other.map)
        assert len(found) == 3
