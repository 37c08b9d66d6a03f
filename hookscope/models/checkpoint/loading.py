"""A checkpoint of any kind into the model it was written for, or a clear no."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hookscope.errors import CheckpointError
from hookscope.layers.modules import unwrap
from hookscope.models.checkpoint import refusal
from hookscope.models.checkpoint.account import Account
from hookscope.models.checkpoint.candidates import Scope
from hookscope.models.checkpoint.choice import listed, scope_of
from hookscope.models.checkpoint.class_names import class_names
from hookscope.models.checkpoint.container import Contents, read
from hookscope.models.checkpoint.head import Match, best_match
from hookscope.models.checkpoint.leaves import Found, find_leaves
from hookscope.models.checkpoint.setting import set_tensors
from hookscope.models.checkpoint.torchvision_guess import Guess, guess, pattern
from hookscope.models.source import ModelSource

# A user's own module may hold references to its parameters that assigning would leave behind.
_ASSIGNABLE = ("torchvision", "timm")
_A_HEAD = 4  # as few tensors as this that do not fit are not another architecture


def load_checkpoint(
    path: str | os.PathLike[str],
    source: ModelSource,
    *,
    key: str | None = None,
    num_classes: int | None = None,
    allow_missing: bool = False,
    unsafe_load: bool = False,
    seed: int = 0,
) -> tuple[nn.Module, Account]:
    """Build ``source``'s model in the variant that the checkpoint was written for, and load it.

    ``key`` chooses among several state dicts; ``num_classes`` overrides what the head says;
    ``allow_missing`` draws what the file lacks at random, from ``seed``; ``unsafe_load`` runs
    code from a file that is not plain data. The model is on the CPU, its modes as built.

    Raises ``CheckpointError``: the file cannot be read, is ambiguous, or does not fit.
    """
    path = Path(path)
    contents = read(path, unsafe_load=unsafe_load)
    found = find_leaves(contents.tree)
    optimizer_alone = refusal.is_optimizer_alone(contents.tree, found.leaves)
    if not found.leaves or (optimizer_alone and key is None):
        raise refusal.nothing_to_load(path, optimizer_alone)
    scope = scope_of(key, found.leaves, path.name)
    match = best_match(source, found.leaves, scope, num_classes, path.name)
    if match is None or not match.fit.fitting:
        raise _misfit(path, source, found, scope, None, num_classes)
    if not match.fit.lacks or allow_missing:
        _refuse_another_model(path, source, found, scope, match)
    _refuse_damage(path, contents, match)
    filled = _fill(path.name, source, found, match)
    if filled.missing:
        if not allow_missing:
            raise _misfit(path, source, found, scope, match, num_classes)
        filled = _fill(path.name, source, found, match, seed)
    return filled.module, _account(path, contents, source, match, filled)


@dataclass(frozen=True)
class _Filled:
    """A model with its tensors, the names it lacks, and those that the checkpoint has besides."""

    module: nn.Module
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


def _fill(
    file: str, source: ModelSource, found: Found, match: Match, seed: int | None = None
) -> _Filled:
    """With a seed, the model is built anew, with random numbers for what the checkpoint lacks."""
    module = match.module
    if seed is not None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = match.variant.build(source)
    try:
        missing, left = set_tensors(
            module,
            {**match.fit.unexpected, **match.fit.fitting},
            _versions(found, match),
            match.wanted,
            assign=source.kind in _ASSIGNABLE,
        )
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error.message}", error.hint) from None
    return _Filled(module, missing, (*left, *match.fit.outside))


def _versions(found: Found, match: Match) -> dict[str, dict[str, object]] | None:
    """The module versions in the file, under the names that the modules have in the model."""
    candidate = match.choice.candidate
    known = found.versions.get(candidate.holder)
    if known is None:
        return None
    versions: dict[str, dict[str, object]] = {}
    for name, notes in known.items():
        if (
            isinstance(name, str)
            and isinstance(notes, dict)
            and f"{name}.".startswith(candidate.prefix)
        ):
            inner = f"{name}."[len(candidate.prefix) :]
            versions[f"{candidate.added}{inner}".strip(".")] = dict(notes)
    return versions


def _refuse_another_model(
    path: Path, source: ModelSource, found: Found, scope: Scope, match: Match
) -> None:
    """ResNet-18's tensors are all in ResNet-34's file, and many of them in ResNet-50's.

    What gives it away are names of the model's own kind that are left over, or much that lacks.
    """
    kinds = {pattern(name) for name in match.wanted.shapes}
    left = any(pattern(name) in kinds for name in match.fit.unexpected)
    if source.kind != "torchvision" or not (left or match.fit.lacks * 4 > len(match.wanted.shapes)):
        return
    fitting = guess(found.leaves, scope, path.name, source.name)
    if fitting is not None and fitting.name not in (None, source.name):
        if not match.fit.lacks:
            raise refusal.wrong_model(path, source, match, fitting)
        raise refusal.misfit(path, source, found.leaves, match, fitting, match.variant.num_classes)


def _refuse_damage(path: Path, contents: Contents, match: Match) -> None:
    held = match.choice.candidate.entries
    hollow = [name for name, leaf in held.items() if leaf.tensor.is_meta]
    if hollow:
        raise CheckpointError(
            f"{path.name} holds names and shapes without numbers ({listed(hollow, 3)})",
            "It was saved from the meta device: save it again from the trained model.",
        )
    damaged = contents.damaged({name: leaf.tensor for name, leaf in held.items() if not leaf.array})
    if damaged:
        raise CheckpointError(
            f"{path.name} is damaged: {len(damaged)} of its tensors are not what their checksums "
            f"say ({listed(damaged, 3)})",
            "Copy or download it again.",
        )


def _misfit(
    path: Path,
    source: ModelSource,
    found: Found,
    scope: Scope,
    match: Match | None,
    num_classes: int | None,
) -> CheckpointError:
    nearly = (
        match is not None
        and match.fit.lacks <= _A_HEAD
        and len(match.fit.unexpected) + len(match.fit.outside) <= _A_HEAD
    )
    fitting: Guess | None = None if nearly else guess(found.leaves, scope, path.name, source.name)
    return refusal.misfit(path, source, found.leaves, match, fitting, num_classes)


def _account(
    path: Path,
    contents: Contents,
    source: ModelSource,
    match: Match,
    filled: _Filled,
) -> Account:
    candidate, lender = match.choice.candidate, match.choice.completed_from
    loaded = [name for name in match.wanted.shapes if name not in filled.missing]
    classes = match.variant.num_classes or source.classes
    return Account(
        file=path.name,
        container=contents.container,
        key=candidate.key,
        prefix=candidate.prefix,
        added=candidate.added,
        loaded=len(loaded),
        missing=filled.missing,
        unexpected=filled.unexpected,
        ema=match.choice.ema,
        completed_from=".".join(lender.root) if lender else None,
        num_classes=classes,
        classes=class_names(contents.tree, classes or _rows_of_last(match.fit.fitting)),
        nonfinite=_nonfinite(filled.module, loaded),
        ran_code=contents.ran_code,
    )


def _rows_of_last(tensors: Mapping[str, Tensor]) -> int | None:
    rows = [tensor.shape[0] for tensor in tensors.values() if tensor.dim() > 1]
    return rows[-1] if rows else None


def _nonfinite(module: nn.Module, names: list[str]) -> tuple[str, ...]:
    """A sum is NaN or infinite when any number is, and reads the tensor once."""
    state = unwrap(module).state_dict()
    return tuple(
        name
        for name in names
        if state[name].is_floating_point()
        and not state[name].sum().isfinite()
        and not state[name].isfinite().all()
    )
