"""Tensors go in mapped where they can be, in the model's precision, shared as the model's."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import safetensors.torch
import torch
from tiny_network import Source, TinyNet, trained
from torch import Tensor, nn
from torchvision import models

from hookscope.models.checkpoint import load_checkpoint
from hookscope.models.spec import resolve

State = dict[str, Tensor]
BOTH = pytest.mark.parametrize("kind", ["factory", "torchvision"])  # copied, assigned


@BOTH
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16, torch.float64])
def test_another_precision_becomes_the_models(
    kind: str, precision: torch.dtype, state: State, saved: Callable[..., Path]
) -> None:
    cast = {n: t.to(precision) if t.is_floating_point() else t for n, t in state.items()}
    model, _ = load_checkpoint(saved(cast), Source(kind=kind))
    for name, tensor in model.state_dict().items():
        assert tensor.dtype == state[name].dtype
        assert torch.equal(tensor, cast[name].to(state[name].dtype))


@BOTH
def test_a_model_in_half_precision_stays_in_it(
    kind: str, state: State, saved: Callable[..., Path]
) -> None:
    model, _ = load_checkpoint(
        saved(state), Source(lambda: TinyNet().half(), kind=kind, variants=())
    )
    assert model.stem.weight.dtype == torch.float16  # type: ignore[union-attr]


@BOTH
def test_what_needs_gradients_is_the_models_affair(
    kind: str, net: nn.Module, saved: Callable[..., Path]
) -> None:
    def make() -> nn.Module:
        model = TinyNet()
        model.stem.requires_grad_(False)
        return model

    state = {name: nn.Parameter(t) for name, t in net.named_parameters()} | dict(
        net.named_buffers()
    )
    model, _ = load_checkpoint(saved(state), Source(make, kind=kind, variants=()))
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == (not name.startswith("stem."))
        assert parameter.is_leaf


class Tied(nn.Module):
    """A weight known under two names, as language models and some heads have it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(4, 4)
        self.decoder = nn.Linear(4, 4)
        self.decoder.weight = self.encoder.weight


@BOTH
@pytest.mark.parametrize("lacking", [None, "encoder.weight", "decoder.weight"])
def test_shared_parameters_stay_shared(
    kind: str, lacking: str | None, saved: Callable[..., Path]
) -> None:
    state = dict(trained(Tied()).state_dict())
    if lacking:
        del state[lacking]  # safetensors keeps only one of the names
    model, account = load_checkpoint(saved(state), Source(Tied, kind=kind, variants=()))
    assert model.encoder.weight is model.decoder.weight
    assert torch.equal(model.encoder.weight, next(iter(state[n] for n in state if "weight" in n)))
    assert account.missing == ()


@BOTH
def test_counters_and_tables_that_older_files_lack_are_not_missed(
    kind: str, state: State, saved: Callable[..., Path]
) -> None:
    old = {name: t for name, t in state.items() if not name.endswith("num_batches_tracked")}
    model, account = load_checkpoint(saved(old), Source(kind=kind))
    assert account.missing == ()
    assert model.stages[0].bn.num_batches_tracked == 0  # type: ignore[index,union-attr]


@BOTH
def test_a_buffer_that_todays_model_makes_itself_is_not_unexpected(
    kind: str, saved: Callable[..., Path]
) -> None:
    class Older(nn.Linear):
        persistent = True

        def __init__(self) -> None:
            super().__init__(2, 2)
            self.register_buffer("index", torch.arange(4), persistent=self.persistent)

    class Newer(Older):
        persistent = False

    path = saved(Older().state_dict())
    model, account = load_checkpoint(path, Source(Newer, kind=kind, variants=()))
    assert account.unexpected == ()
    assert torch.equal(model.index, torch.arange(4))


@BOTH
def test_weights_laid_out_in_another_order_become_contiguous(
    kind: str, state: State, saved: Callable[..., Path]
) -> None:
    state["stem.weight"] = state["stem.weight"].to(memory_format=torch.channels_last)
    model, _ = load_checkpoint(saved(state), Source(kind=kind))
    assert model.stem.weight.is_contiguous()  # type: ignore[union-attr,operator]
    assert torch.equal(model.stem.weight, state["stem.weight"])  # type: ignore[union-attr]


def test_a_users_own_references_to_parameters_stay_good(saved: Callable[..., Path]) -> None:
    """Why a factory's model is copied into: assigning would leave the list with old tensors."""

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(2, 2)
            self.all = [self.inner.weight, self.inner.bias]

    state = trained(Remembers()).state_dict()
    model, _ = load_checkpoint(saved(state), Source(Remembers, variants=()))
    assert torch.equal(model.all[0], state["inner.weight"])


def test_a_recurrent_network_computes_with_what_was_assigned(saved: Callable[..., Path]) -> None:
    net = trained(nn.LSTM(3, 4, num_layers=2))
    source = Source(lambda: nn.LSTM(3, 4, num_layers=2), kind="torchvision", variants=())
    model, _ = load_checkpoint(saved(net.state_dict()), source)
    x = torch.ones(2, 1, 3)
    assert torch.equal(model.eval()(x)[0], net(x)[0])


def test_torchvisions_older_names_are_read_by_its_own_modules(saved: Callable[..., Path]) -> None:
    """ViT's published files are of version 1 of its MLP, with linear_1 and linear_2."""
    arguments = {"num_layers": 1, "hidden_dim": 16, "mlp_dim": 24, "num_heads": 2}
    arguments |= {"image_size": 32, "patch_size": 16}

    def make() -> nn.Module:
        return models.VisionTransformer(**arguments, num_classes=3)

    state = trained(make()).state_dict()
    old = OrderedDict(
        (re.sub(r"mlp\.0\.", "mlp.linear_1.", re.sub(r"mlp\.3\.", "mlp.linear_2.", name)), tensor)
        for name, tensor in state.items()
    )
    model, account = load_checkpoint(saved(old), Source(make, variants=()))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert (account.missing, account.unexpected) == ((), ())


def test_densenets_older_names(saved: Callable[..., Path]) -> None:
    def make() -> nn.Module:
        return models.DenseNet(4, (1, 1), 4, num_classes=3)

    state = trained(make()).state_dict()
    old = {
        re.sub(r"(denselayer\d+)\.(norm|conv)([12])\.", r"\1.\2.\3.", name): tensor
        for name, tensor in state.items()
    }
    assert old.keys() != state.keys()
    model, account = load_checkpoint(saved(old), Source(make, variants=()))
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert account.missing == account.unexpected == ()


@pytest.mark.parametrize("prefix", ["", "module."])
def test_mnasnet_which_wants_to_know_its_version(
    prefix: str, saved: Callable[..., Path], tmp_path: Path
) -> None:
    state = trained(models.mnasnet0_5(weights=None, num_classes=3)).state_dict()
    source = Source(lambda: models.mnasnet0_5(weights=None, num_classes=3), variants=())
    named = OrderedDict((f"{prefix}{name}", tensor) for name, tensor in state.items())
    named._metadata = OrderedDict(  # type: ignore[attr-defined]
        (f"{prefix}{name}".strip("."), notes) for name, notes in state._metadata.items()
    )
    safetensors.torch.save_file(dict(named), tmp_path / "without_versions")
    for path in (saved(named), tmp_path / "without_versions"):
        model, _ = load_checkpoint(path, source)
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_tensors_are_mapped_not_copied(tmp_path: Path) -> None:
    """A hundred megabytes are opened with a few of private memory; the file's pages are shared."""

    def make() -> nn.Module:
        return nn.Linear(5000, 5000, bias=False)

    torch.save({"weight": torch.ones(5000, 5000)}, tmp_path / "large.pth")
    source = Source(make, name="linear", kind="torchvision", variants=())
    load_checkpoint(tmp_path / "large.pth", source)  # what is imported on the way
    process = psutil.Process()
    before = process.memory_full_info().uss
    model, _ = load_checkpoint(tmp_path / "large.pth", source)
    grown = process.memory_full_info().uss - before
    # The pages that the checksum touched count, once; a copy would count them twice.
    assert grown < 1.3 * 100e6
    assert model.weight.sum() == 25e6  # type: ignore[operator]


def test_a_real_torchvision_model_computes_the_same(saved: Callable[..., Path]) -> None:
    net = models.resnet18(weights=None, num_classes=4).eval()
    model, _ = load_checkpoint(saved({"model": net.state_dict()}), resolve("resnet18"))
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.eval()(x), net(x))
