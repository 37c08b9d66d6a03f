"""The state dict is found wherever it lies, and what is ambiguous is not guessed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_network import Source, TinyNet
from torch import Tensor, nn

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint import load_checkpoint

State = dict[str, Tensor]


def prefixed(prefix: str, state: State) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in state.items()}


def other(state: State) -> State:
    """The same names and shapes, other numbers."""
    return {
        name: tensor + 1 if tensor.is_floating_point() else tensor for name, tensor in state.items()
    }


def holds(model: nn.Module, state: State) -> bool:
    return all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


WRAPPINGS = ["state_dict", "model", "model_state_dict", "model_state", "net", "module", "state"]
PREFIXES = [
    "",
    "module.",
    "_orig_mod.",
    "model.",
    "backbone.",
    "encoder.",
    "net.",
    "encoder_q.",
    "module._orig_mod.",
    "_orig_mod.module.",
    "module.encoder_q.",
    "module.model.backbone.",
    "whatever.someone.calls.it.",
]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("wrapping", [None, *WRAPPINGS])
def test_every_wrapping_with_every_prefix(
    wrapping: str | None, prefix: str, state: State, saved: Callable[..., Path]
) -> None:
    inner: Any = prefixed(prefix, state)
    path = saved({wrapping: inner, "epoch": 3, "best": 0.7} if wrapping else inner)
    model, account = load_checkpoint(path, Source())
    assert holds(model, state)
    assert (account.key, account.prefix) == (wrapping or "", prefix)
    assert (account.loaded, account.missing, account.unexpected) == (len(state), (), ())


def test_wrappings_inside_one_another_in_either_order(
    state: State, saved: Callable[..., Path]
) -> None:
    for nested in (
        {"checkpoint": {"state_dict": prefixed("module.", state)}},
        {"state_dict": {"model": prefixed("backbone.", state)}, "meta": {"epoch": 1}},
        {"models": [{"net": state}]},
        {"args": argparse.Namespace(weights=state)},
    ):
        model, _ = load_checkpoint(saved(nested), Source())
        assert holds(model, state)


def test_a_state_dict_that_is_itself_nested(state: State, saved: Callable[..., Path]) -> None:
    tree: dict[str, Any] = {}
    for name, tensor in state.items():
        part, _, rest = name.partition(".")
        tree.setdefault(part, {})[rest] = tensor
    model, account = load_checkpoint(saved({"model": tree}), Source())
    assert holds(model, state)
    assert account.key == "model"


@pytest.mark.parametrize(
    "wrapper",
    ["module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"],
)
def test_what_wrapped_a_part_of_the_model_is_seen_through(
    wrapper: str, state: State, saved: Callable[..., Path]
) -> None:
    """The classic: VGG's and AlexNet's features alone under DataParallel."""
    inside = {name.replace("stages.", f"stages.{wrapper}."): t for name, t in state.items()}
    model, account = load_checkpoint(saved({"state_dict": inside}), Source())
    assert holds(model, state)
    assert account.missing == account.unexpected == ()


def test_a_model_whose_own_names_have_such_a_part_keeps_it(saved: Callable[..., Path]) -> None:
    def make() -> nn.Module:
        return nn.ModuleDict({"module": TinyNet(), "model": nn.Linear(2, 2)})

    state = make().state_dict()
    model, account = load_checkpoint(saved(state), Source(make, variants=()))
    assert holds(model, state)
    assert account.prefix == ""


def test_a_prefix_that_only_the_model_has_is_added(
    state: State, saved: Callable[..., Path]
) -> None:
    def make() -> nn.Module:
        return nn.ModuleDict({"net": TinyNet()})

    model, account = load_checkpoint(saved(prefixed("module.", state)), Source(make, variants=()))
    assert holds(model["net"], state)  # type: ignore[index]
    assert (account.prefix, account.added) == ("module.", "net.")
    assert "prefix net. added" in account.line()


def test_a_model_under_data_parallel_takes_plain_names(
    state: State, saved: Callable[..., Path]
) -> None:
    source = Source(lambda: nn.DataParallel(TinyNet()), variants=())
    model, _ = load_checkpoint(saved(state), source)
    assert isinstance(model, nn.DataParallel)
    assert holds(model.module, state)


def test_lightning(state: State, saved: Callable[..., Path]) -> None:
    path = saved(
        {
            "epoch": 3,
            "global_step": 100,
            "pytorch-lightning_version": "2.2.0",
            "state_dict": {**prefixed("model.", state), "criterion.weight": torch.ones(5)},
            "hyper_parameters": {"lr": 0.1, "classes": ["a", "b", "c", "d", "e"]},
            "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": []}],
            "callbacks": {},
        }
    )
    model, account = load_checkpoint(path, Source())
    assert holds(model, state)
    assert (account.key, account.prefix) == ("state_dict", "model.")
    assert account.unexpected == ("criterion.weight",)
    assert account.classes == ("a", "b", "c", "d", "e")


def test_an_optimizers_averages_with_the_names_of_the_weights_are_not_taken_for_them(
    state: State, saved: Callable[..., Path]
) -> None:
    beside = {
        "optimizer": {"exp_avg": other(state), "exp_avg_sq": other(state)},
        "optimizer_state_dict": other(state),
        "grads": other(state),
    }
    model, account = load_checkpoint(saved({**beside, "model": state}), Source())
    assert holds(model, state)
    assert account.key == "model"


EMA_KEYS = ["state_dict_ema", "model_ema", "ema_state_dict", "ema", "modelEMA", "ema_model.module"]


@pytest.mark.parametrize("key", EMA_KEYS)
@pytest.mark.parametrize("raw", ["state_dict", "model", "a", "z"])
def test_ema_weights_beside_raw_ones_are_taken_and_said(
    key: str, raw: str, state: State, saved: Callable[..., Path]
) -> None:
    path = saved({raw: other(state), key: prefixed("module.", state), "epoch": 3})
    model, account = load_checkpoint(path, Source())
    assert holds(model, state)
    assert account.ema
    assert "EMA" in account.line()
    model, account = load_checkpoint(path, Source(), key=raw)
    assert holds(model, other(state))
    assert not account.ema


def test_ema_in_one_flat_dict(state: State, saved: Callable[..., Path]) -> None:
    flat = {**prefixed("model.", other(state)), **prefixed("ema_model.module.", state)}
    model, account = load_checkpoint(saved({"state_dict": flat}), Source())
    assert holds(model, state)
    assert (account.ema, account.prefix) == (True, "ema_model.module.")
    model, _ = load_checkpoint(saved({"state_dict": flat}), Source(), key="model.")
    assert holds(model, other(state))


def test_a_word_that_only_ends_like_ema_is_not_one(
    state: State, saved: Callable[..., Path]
) -> None:
    with pytest.raises(CheckpointError, match="ambiguous"):
        load_checkpoint(saved({"schema": state, "model": other(state)}), Source())


def test_an_ema_of_the_parameters_alone_is_completed_by_the_raw_buffers(
    state: State, saved: Callable[..., Path]
) -> None:
    parameters = {name for name, _ in TinyNet().named_parameters()}
    shadow = {name: tensor for name, tensor in other(state).items() if name in parameters}
    model, account = load_checkpoint(saved({"model": state, "ema": shadow}), Source())
    assert holds(model, {**state, **shadow})
    assert account.ema
    assert account.completed_from == "model"
    assert "buffers from model" in account.line()


def test_a_teacher_counts_as_ema_beside_a_student_only(
    state: State, saved: Callable[..., Path]
) -> None:
    student = prefixed("module.backbone.", other(state))
    teacher = prefixed("backbone.", state)
    model, account = load_checkpoint(saved({"student": student, "teacher": teacher}), Source())
    assert holds(model, state)
    assert (account.key, account.ema) == ("teacher", True)
    _, account = load_checkpoint(saved({"teacher": teacher}), Source())
    assert not account.ema
    with pytest.raises(CheckpointError, match="ambiguous"):
        load_checkpoint(saved({"teacher": teacher, "model": other(state)}), Source())


@pytest.mark.parametrize("second", ["module.", "net.", "encoder_k."])
def test_two_full_fits_with_different_numbers_are_refused(
    second: str, state: State, saved: Callable[..., Path]
) -> None:
    path = saved({"state_dict": {**state, **prefixed(second, other(state))}})
    with pytest.raises(CheckpointError, match="ambiguous") as caught:
        load_checkpoint(path, Source())
    hint = caught.value.hint
    keys = [word for word in hint.split() if word.startswith("state_dict.")]
    assert keys == ["state_dict.", f"state_dict.{second}"]
    for key, expected in zip(keys, (state, other(state)), strict=True):
        model, _ = load_checkpoint(path, Source(), key=key)
        assert holds(model, expected)


def test_both_at_the_top_of_the_file_are_chosen_by_a_dot(
    state: State, saved: Callable[..., Path]
) -> None:
    path = saved({**state, **prefixed("module.", other(state))})
    with pytest.raises(CheckpointError, match=r"ambiguous") as caught:
        load_checkpoint(path, Source())
    assert "--checkpoint-key . " in caught.value.hint
    assert holds(load_checkpoint(path, Source(), key=".")[0], state)
    assert holds(load_checkpoint(path, Source(), key="module.")[0], other(state))
    assert holds(load_checkpoint(path, Source(), key="module")[0], other(state))


def test_two_full_fits_with_the_same_numbers_are_one(
    state: State, saved: Callable[..., Path]
) -> None:
    copy = {name: tensor.clone() for name, tensor in state.items()}
    copy["stem.weight"][0] = state["stem.weight"][0] = float("nan")  # a copy of NaN is NaN
    model, _ = load_checkpoint(saved({**state, **prefixed("module.", copy)}), Source())
    assert torch.equal(model.state_dict()["head.weight"], state["head.weight"])


def test_a_name_that_is_there_twice_inside_a_wrapper_is_refused(
    state: State, saved: Callable[..., Path]
) -> None:
    path = saved({**state, "head.module.weight": state["head.weight"] + 1})
    with pytest.raises(CheckpointError, match=r"twice.*"):
        load_checkpoint(path, Source())


def test_members_of_an_ensemble_are_chosen_by_their_number(
    state: State, saved: Callable[..., Path]
) -> None:
    path = saved({"models": [other(state), state]})
    with pytest.raises(CheckpointError, match="ambiguous"):
        load_checkpoint(path, Source())
    model, account = load_checkpoint(path, Source(), key="models.1")
    assert holds(model, state)
    assert account.key == "models.1"


def test_an_unknown_key_names_the_ones_there_are(state: State, saved: Callable[..., Path]) -> None:
    path = saved({"state_dict": state, "ema": other(state)})
    with pytest.raises(CheckpointError, match="no tensors under the key 'stat_dict'") as caught:
        load_checkpoint(path, Source(), key="stat_dict")
    assert "Did you mean state_dict" in caught.value.hint


def test_a_key_that_is_there_twice_is_asked_back(state: State, saved: Callable[..., Path]) -> None:
    path = saved({"a": {"net": state}, "b": {"net": other(state)}})
    with pytest.raises(CheckpointError, match="more than once") as caught:
        load_checkpoint(path, Source(), key="net")
    assert "a.net, b.net" in caught.value.hint
    assert holds(load_checkpoint(path, Source(), key="b.net")[0], other(state))


def test_an_optimizers_copy_is_loaded_where_the_key_says_so(
    state: State, saved: Callable[..., Path]
) -> None:
    path = saved({"model": state, "optimizer": {"master_params": other(state)}})
    assert holds(load_checkpoint(path, Source(), key="optimizer")[0], other(state))
