from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from layer_networks import Fixed, Forked, Reader, Remembering
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, spectral_norm

from hookscope.layers.probe import probe
from hookscope.layers.skeleton import Skeleton
from hookscope.layers.trial import Feed, StandIn


def normed() -> nn.Module:
    model = nn.Sequential(
        spectral_norm(nn.Conv2d(3, 4, 3)),
        parametrizations.weight_norm(nn.Conv2d(4, 4, 3)),
        nn.Conv2d(4, 4, 3),
    )
    prune.random_unstructured(model[2], "weight", 0.5)
    return model


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.Flatten(), nn.LazyLinear(2))


NETWORKS = [Fixed, Reader, Forked, Remembering, normed, lazy]


def everything(model: nn.Module) -> dict[str, Any]:
    """All that one can see of a model: attributes down to identity, tensors down to versions."""
    seen: dict[str, Any] = {}
    for name, module in model.named_modules():
        seen[f"{name} class"] = type(module)
        for key, value in module.__dict__.items():
            seen[f"{name}.{key}"] = value, repr(value) if not isinstance(value, Tensor) else None
        for table in ("_parameters", "_buffers", "_forward_hooks", "_forward_pre_hooks"):
            seen[f"{name}.{table} members"] = list(module.__dict__[table].items())
        for tensor in [*module._parameters.values(), *module._buffers.values()]:
            if tensor is not None and not nn.parameter.is_lazy(tensor):
                seen[f"{name} {id(tensor)}"] = tensor._version, tensor.requires_grad, tensor.grad
    return seen


@pytest.mark.parametrize("build", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
def test_a_probe_leaves_no_trace(build: Any, training: bool) -> None:
    model = build().train(training)
    if build is Remembering:
        model.norm.requires_grad_(False)
    numbers = copy.deepcopy(model.state_dict()) if build is not lazy else None
    before = everything(model)
    random = torch.get_rng_state()
    for want_default in (True, False):
        assert probe(model, want_default=want_default).problem is None
    assert torch.equal(torch.get_rng_state(), random)
    assert everything(model) == before
    assert torch.is_grad_enabled()
    if numbers is not None:
        for key, value in model.state_dict().items():
            assert torch.equal(value, numbers[key])


def test_an_object_in_an_attribute_is_copied_with_its_tensors() -> None:
    model = Remembering()
    model.cache.last = torch.ones(2)
    skeleton = Skeleton(model)
    assert skeleton.root.cache is not model.cache
    assert skeleton.root.cache.last.is_meta
    assert skeleton.root.seen is not model.seen


def test_hooks_of_the_user_do_not_run() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))

    def refuse(*_: Any) -> None:
        raise AssertionError("a hook of the user saw a tensor of ours")

    model[0].register_forward_hook(refuse)
    model[1].register_forward_pre_hook(refuse, with_kwargs=True)
    model.register_full_backward_hook(refuse)
    assert probe(model).problem is None
    with pytest.raises(AssertionError):
        model(torch.zeros(1, 3, 8, 8))


def test_a_stand_in_with_data_computes_the_same() -> None:
    torch.manual_seed(0)
    model = normed().eval()
    x = torch.rand(1, 3, 8, 8)
    assert torch.equal(Skeleton(model, with_data=True).root(x), model(x))


def test_bound_methods_and_shared_modules_lead_to_the_copy() -> None:
    class Bound(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)
            self.again = self.conv
            self.steps = [self.conv.forward, self.head]

        def head(self, x: Tensor) -> Tensor:
            return x * self.conv.bias.sum()

        def forward(self, x: Tensor) -> Tensor:
            for step in self.steps:
                x = step(x)
            return x

    model = Bound()
    root = Skeleton(model).root
    assert root.conv is root.again
    assert root.steps[0].__self__ is root.conv
    assert root.steps[1].__self__ is root


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda m: torch.compile(m, backend="eager")])
def test_wrappers_are_seen_through(wrap: Any) -> None:
    inside = nn.Sequential(wrap(nn.Conv2d(3, 4, 3)), nn.ReLU())
    for model in (inside, wrap(inside)):
        found = probe(model, (8, 8))
        assert found.problem is None
        assert "1" in found.calls


def test_only_numbers_that_steer_keep_their_values() -> None:
    model = nn.Module()
    model.register_buffer("index", torch.arange(4))
    model.register_buffer("mean", torch.rand(3))
    model.register_buffer("table", torch.zeros(1 << 17, dtype=torch.long))
    root = Skeleton(model).root
    assert root.index.tolist() == [0, 1, 2, 3]
    assert root.index.data_ptr() != model.index.data_ptr()
    assert root.mean.is_meta
    assert root.table.is_meta


def test_a_torchscript_part_runs_and_stays_unseen() -> None:
    with warnings.catch_warnings():
        # torch itself deprecates TorchScript; models that hold such parts are still about.
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(nn.Conv2d(4, 4, 3))
    model = nn.Sequential(nn.Conv2d(3, 4, 3), scripted, nn.ReLU())
    found = probe(model, (9, 9))
    assert found.problem is None
    assert set(found.calls) == {"0", "2"}


def test_a_pass_on_data_keeps_the_random_state() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(x + torch.rand_like(x))

    model = Noisy()
    state = torch.get_rng_state()
    StandIn(model, with_data=True).run(Feed((8, 8)), traced=False)
    assert torch.equal(torch.get_rng_state(), state)
