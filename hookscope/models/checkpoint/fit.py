"""How well a place in a checkpoint fits a model: what fits, what is missing, what is left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Size, Tensor, nn
from torch.nn.parameter import is_lazy

from hookscope.models.checkpoint.candidates import Candidate, Scope, fits
from hookscope.models.checkpoint.leaves import Leaf


@dataclass(frozen=True)
class Wanted:
    """What a model wants of a checkpoint: its tensors by name.

    ``spared`` names the buffers that no training changes (counters, tables of indices): where a
    checkpoint lacks one, what the constructor computed is right; ``unsaved`` those that today's
    model makes itself and an older file may hold. ``tied`` groups the names under which one and
    the same parameter is known.
    """

    shapes: Mapping[str, Size | None]
    learned: frozenset[str]
    spared: frozenset[str]
    unsaved: frozenset[str]
    tied: tuple[tuple[str, ...], ...]


def wanted_by(module: nn.Module) -> Wanted:
    """What ``module`` wants: the names, shapes and kinds of its state dict."""
    state = {
        name: tensor
        for name, tensor in module.state_dict(keep_vars=True).items()
        if isinstance(tensor, Tensor)
    }
    parameters = dict(module.named_parameters(remove_duplicate=False))
    groups: dict[int, list[str]] = {}
    for name, parameter in parameters.items():
        groups.setdefault(id(parameter), []).append(name)
    return Wanted(
        shapes={name: None if is_lazy(tensor) else tensor.shape for name, tensor in state.items()},
        learned=frozenset(state.keys() & parameters.keys()),
        spared=frozenset(
            name
            for name, tensor in state.items()
            if name not in parameters and not tensor.is_floating_point()
        ),
        unsaved=frozenset(dict(module.named_buffers(remove_duplicate=False)).keys() - state.keys()),
        tied=tuple(tuple(names) for names in groups.values() if len(names) > 1),
    )


@dataclass(frozen=True)
class Fit:
    """The model's names in three parts, and what the same state dict holds besides.

    ``mismatched`` maps a name to its shape in the file and in the model. ``unexpected`` are
    names behind the candidate's root; ``outside`` are those that lie beside it.
    """

    fitting: Mapping[str, Tensor]
    mismatched: Mapping[str, tuple[Size, Size]]
    missing: tuple[str, ...]
    unexpected: Mapping[str, Tensor]
    outside: Mapping[str, Tensor]

    @property
    def perfect(self) -> bool:
        return not (self.mismatched or self.missing or self.unexpected)

    @property
    def lacks(self) -> int:
        return len(self.mismatched) + len(self.missing)


def fit(candidate: Candidate, leaves: tuple[Leaf, ...], wanted: Wanted) -> Fit:
    """Compare what ``candidate`` holds with what the model wants."""
    fitting: dict[str, Tensor] = {}
    mismatched: dict[str, tuple[Size, Size]] = {}
    for name, leaf in candidate.entries.items():
        shape = wanted.shapes[name]
        if fits(leaf.tensor, shape):
            fitting[name] = leaf.tensor
        else:
            mismatched[name] = (leaf.tensor.shape, shape or torch.Size())
    held = {name for group in wanted.tied if fitting.keys() & set(group) for name in group}
    missing = wanted.shapes.keys() - fitting.keys() - mismatched.keys() - held - wanted.spared
    taken = {id(leaf) for leaf in candidate.entries.values()}
    unexpected: dict[str, Tensor] = {}
    outside: dict[str, Tensor] = {}
    depth = len(candidate.root)
    for leaf in leaves:
        if id(leaf) in taken:
            continue
        if leaf.parts[:depth] == candidate.root:
            name = candidate.added + ".".join(leaf.parts[depth:])
            within_optimizer = not Scope(candidate.root).allows(
                candidate.root + leaf.holder[depth:]
            )
            if name not in wanted.unsaved and not within_optimizer:
                unexpected[name] = leaf.tensor
        elif leaf.holder == candidate.holder:
            outside[".".join(leaf.parts[len(candidate.holder) :])] = leaf.tensor
    return Fit(
        fitting=fitting,
        mismatched=mismatched,
        missing=tuple(name for name in wanted.shapes if name in missing),
        unexpected=unexpected,
        outside=outside,
    )
