"""A bad fit is refused, with the names on each side and a guess at the reason."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny_network import Source, TinyNet, trained
from torch import Tensor, nn

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint import load_checkpoint, loading
from hookscope.models.spec import resolve
from hookscope.models.structure import without_initialisation

State = dict[str, Tensor]


def refused(path: Path, source: object = None, **keywords: object) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path, source or Source(), **keywords)  # type: ignore[arg-type]
    return caught.value


def light(name: str) -> State:
    """A torchvision model's names and shapes, all numbers zero and next to no bytes."""
    with without_initialisation():
        state = resolve(name).build().state_dict()
    return {
        name: torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
        for name, tensor in state.items()
    }


@pytest.fixture
def no_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building torchvision's families takes a second; here their names play no part."""
    monkeypatch.setattr(loading, "guess", lambda *_: None)


def test_missing_tensors_are_named(state: State, saved: Callable[..., Path]) -> None:
    del state["stages.1.bn.running_mean"]
    error = refused(saved(state))
    assert "18 tensors" not in error.message
    assert "1 are missing" in error.message
    assert "missing: stages.1.bn.running_mean" in error.message
    assert "--allow-missing" in error.hint


def test_long_lists_of_names_are_cut(
    state: State, saved: Callable[..., Path], no_guess: None
) -> None:
    few = {name: state[name] for name in list(state)[:6]}
    error = refused(saved(few))
    assert "10 are missing" in error.message  # two counters of batches are not missed
    assert "and 5 more" in error.message
    assert max(map(len, error.message.splitlines())) < 200


def test_another_head_is_said_by_its_name(state: State, saved: Callable[..., Path]) -> None:
    renamed = {name.replace("head.", "head.1."): tensor for name, tensor in state.items()}
    error = refused(saved(renamed))
    assert "left over: head.1.weight, head.1.bias" in error.message
    assert "head.1.weight could be what the model calls head.weight" in error.message


def test_a_prefix_that_is_left_over_is_said(state: State, saved: Callable[..., Path]) -> None:
    """One part of the network lies elsewhere."""
    moved = {
        name if name.startswith("stages") else f"net.{name}": tensor
        for name, tensor in state.items()
    }
    assert "prefix net. left over" in refused(saved(moved)).message


def test_another_number_of_input_channels_is_said(state: State, saved: Callable[..., Path]) -> None:
    state["stem.weight"] = state["stem.weight"][:, :1]
    error = refused(saved(state))
    assert "stem.weight (4 x 1 x 3 x 3 in the file, 4 x 3 x 3 x 3 in the model)" in error.message
    assert "stem.weight takes 1 channels in the file, 3 in the model" in error.message


def test_another_picture_size_is_said(saved: Callable[..., Path]) -> None:
    state = light("vit_b_16")
    state["encoder.pos_embedding"] = torch.zeros(1, 577, 768)
    error = refused(saved(state), resolve("vit_b_16"))
    assert "24 x 24 patches, the model is built for 14 x 14" in error.message
    assert "--model-arg image_size" in error.message


def test_the_smaller_model_is_named(saved: Callable[..., Path]) -> None:
    error = refused(saved(light("resnet18")), resolve("resnet34"))
    assert "missing: layer1.2.conv1.weight" in error.message
    assert "--model resnet18" in error.hint


def test_the_larger_model_is_named_although_nothing_is_missing(
    saved: Callable[..., Path],
) -> None:
    """ResNet-34's file holds every tensor of ResNet-18, in its shape."""
    error = refused(saved({"state_dict": light("resnet34")}), resolve("resnet18"))
    assert "96 more" in error.message
    assert "Did you mean --model resnet34?" in error.hint


def test_allow_missing_does_not_let_another_network_in(saved: Callable[..., Path]) -> None:
    """A good part of ResNet-18's names and shapes are in ResNet-50's file."""
    error = refused(saved(light("resnet50")), resolve("resnet18"), allow_missing=True)
    assert "--model resnet50" in error.hint


def test_another_family_is_recognised(saved: Callable[..., Path]) -> None:
    error = refused(saved(light("vgg11_bn")), resolve("resnet18"))
    assert "looks like a VGG" in error.message
    assert "--model vgg11_bn" in error.hint


def test_another_family_with_another_head_and_a_prefix_is_recognised(
    saved: Callable[..., Path],
) -> None:
    state = {f"module.{name}": tensor for name, tensor in light("shufflenet_v2_x0_5").items()}
    for name in ("module.fc.weight", "module.fc.bias"):
        state[name] = state[name][:7]
    error = refused(saved({"model": state}), resolve("resnet18"))
    assert "--model shufflenet_v2_x0_5" in error.hint


def test_a_family_of_which_no_member_fits_is_named_alone(saved: Callable[..., Path]) -> None:
    state = {
        name.replace("features.0", "features.77"): tensor for name, tensor in light("vgg11").items()
    }
    error = refused(saved(state), Source())
    assert "looks like an AlexNet or a VGG" in error.message  # of the same names
    assert "Did you mean" not in error.hint


def test_what_is_like_no_network_is_told_by_its_names(saved: Callable[..., Path]) -> None:
    error = refused(saved({"tokens.weight": torch.ones(3), "scale": torch.ones(1)}))
    assert "knows none of its names" in error.message
    assert "tokens.weight, scale" in error.message


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"optimizer": state}])
def test_an_optimizers_state_alone_is_said(
    make: Callable[..., torch.optim.Optimizer],
    wrap: Callable[[object], object],
    saved: Callable[..., Path],
) -> None:
    net = TinyNet()
    optimizer = make(net.parameters(), lr=0.1)
    if make is torch.optim.Adam:
        net(torch.ones(2, 3, 8, 8)).sum().backward()
        optimizer.step()
    error = refused(saved(wrap(optimizer.state_dict())))
    assert "optimizer alone" in error.message


def test_nothing_but_numbers_and_words(saved: Callable[..., Path]) -> None:
    assert "no tensors by name" in refused(saved({"epoch": 3, "loss": 0.1})).message


def test_quantized_weights_are_refused_by_what_they_are(
    state: State, saved: Callable[..., Path]
) -> None:
    whole = {name: (t * 10).to(torch.int8) if t.dim() > 1 else t for name, t in state.items()}
    error = refused(saved(whole))
    assert "torch.int8" in error.message
    assert "quantized" in error.message


def test_a_quantized_network_of_torchvision(saved: Callable[..., Path], no_guess: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # deprecated, and in files for long
        weight = torch.quantize_per_tensor(torch.ones(2, 4), 0.1, 0, torch.qint8)
    packed = {"head.scale": torch.ones(()), "head._packed_params._packed_params": (weight, None)}
    assert "looks quantized" in refused(saved(packed)).message


def test_with_allow_missing_the_rest_is_drawn_from_the_seed(
    state: State, saved: Callable[..., Path]
) -> None:
    del state["head.weight"]
    path = saved(state)
    before = torch.get_rng_state()
    model, account = load_checkpoint(path, Source(), allow_missing=True, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(3)
    drawn = TinyNet()
    torch.set_rng_state(before)
    assert torch.equal(model.head.weight, drawn.head.weight)  # type: ignore[union-attr]
    assert torch.equal(model.head.bias, state["head.bias"])  # type: ignore[union-attr]
    assert account.missing == ("head.weight",)
    assert "1 missing (head.weight)" in account.line()


def test_allow_missing_does_not_mean_that_nothing_may_fit(
    saved: Callable[..., Path], no_guess: None
) -> None:
    assert "knows none" in refused(saved({"a.b": torch.ones(2)}), allow_missing=True).message


def test_unexpected_tensors_are_reported_and_loading_goes_on(
    state: State, saved: Callable[..., Path]
) -> None:
    extra = {"loss.weight": torch.ones(3), "stages.9.conv.weight": torch.ones(2)}
    _, account = load_checkpoint(saved({**state, **extra}), Source())
    assert account.unexpected == ("loss.weight", "stages.9.conv.weight")
    assert "2 unexpected (loss.weight, stages.9.conv.weight)" in account.line()
    assert account.record()["unexpected"] == 2


def test_the_account_is_one_line_and_its_record_is_plain(
    state: State, saved: Callable[..., Path]
) -> None:
    path = saved({"state_dict": {f"module.{name}": t for name, t in state.items()}})
    _, account = load_checkpoint(path, Source())
    assert account.line() == (
        "best.pth: PyTorch zip file, key state_dict, prefix module. stripped; "
        "18 loaded, 0 missing, 0 unexpected, 5 classes"
    )
    assert account.record() == {
        "container": "PyTorch zip file",
        "key": "state_dict",
        "prefix": "module.",
        "added": None,
        "ema": False,
        "loaded": 18,
        "missing": 0,
        "unexpected": 0,
        "num_classes": 5,
        "nonfinite": 0,
    }


def test_numbers_that_are_not_finite_are_said(state: State, saved: Callable[..., Path]) -> None:
    state["stages.0.conv.weight"][0, 0, 0, 0] = float("nan")
    state["head.bias"][2] = float("inf")
    state["head.weight"][0] = 3e38  # two of them are more than a float's largest, and finite
    _, account = load_checkpoint(saved(state), Source())
    assert account.nonfinite == ("stages.0.conv.weight", "head.bias")
    assert "2 not finite (stages.0.conv.weight, head.bias)" in account.line()


def test_a_network_that_fits_is_trained(net: nn.Module) -> None:
    """The fixture is no trivial one: constants of a constructor would hide what is not loaded."""
    fresh = trained(TinyNet()).state_dict()
    assert all(torch.equal(fresh[name], tensor) for name, tensor in net.state_dict().items())
    assert all(tensor.unique().numel() == tensor.numel() for tensor in fresh.values())


def test_tensors_without_numbers_are_refused(state: State, saved: Callable[..., Path]) -> None:
    hollow = {name: tensor.to("meta") for name, tensor in state.items()}
    error = refused(saved(hollow))
    assert "without numbers" in error.message
