"""Why a checkpoint does not fit a model, in words: what is wrong, why so, and what to do."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Size

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint.choice import listed
from hookscope.models.checkpoint.fit import Fit
from hookscope.models.checkpoint.head import Match
from hookscope.models.checkpoint.leaves import Leaf
from hookscope.models.checkpoint.torchvision_guess import Guess
from hookscope.models.source import ModelSource

_OPTIMIZER = re.compile(r"(^|/)(optim(izers?)?(_\w*)?|state/\d+)(/|$)")  # state: by number
_QUANTIZED = re.compile(r"_packed_params|(^|\.)(qweight|qzeros|SCB|weight_scale|absmax)$")


def nothing_to_load(path: Path, optimizer_alone: bool) -> CheckpointError:
    """For a file without a tensor, or with an optimizer's alone."""
    if optimizer_alone:
        return CheckpointError(
            f"{path.name} holds the state of an optimizer alone, no weights",
            "Take the file that the same run wrote for the model.",
        )
    return CheckpointError(
        f"{path.name} holds no tensors by name",
        "It may be a log, a configuration, or a frozen archive whose weights lost their names.",
    )


def is_optimizer_alone(tree: Any, leaves: tuple[Leaf, ...]) -> bool:
    """Whether all tensors lie in what an optimizer saves, of which plain SGD has none."""
    if not leaves:
        nodes = (tree, *tree.values()) if isinstance(tree, Mapping) else ()
        return any(
            isinstance(node, Mapping) and {"state", "param_groups"} <= node.keys() for node in nodes
        )
    return all(_OPTIMIZER.search("/".join(leaf.holder)) for leaf in leaves)


def misfit(
    path: Path,
    source: ModelSource,
    leaves: tuple[Leaf, ...],
    match: Match | None,
    guess: Guess | None,
    num_classes: int | None,
) -> CheckpointError:
    """For a file whose tensors are not, or not all, those of the model."""
    lines = [f"{path.name} does not fit {source.name}"]
    if match is None:
        lines[0] += ": the model knows none of its names"
        lines.append(f"  in the file: {listed(['.'.join(leaf.parts) for leaf in leaves])}")
        reasons = [*_of_the_file(path, leaves)]
    else:
        found = match.fit
        left = [*found.unexpected, *found.outside]
        lines[0] += (
            f": {len(found.fitting)} tensors fit, {len(found.missing)} are missing, "
            f"{len(found.mismatched)} have another shape, {len(left)} are left over"
        )
        lines += [f"  missing: {listed(found.missing)}"] if found.missing else []
        lines += [f"  another shape: {_shapes(found)}"] if found.mismatched else []
        lines += [f"  left over: {listed(left)}"] if left else []
        reasons = [*_of_the_fit(found, match, source, num_classes), *_of_the_file(path, leaves)]
    if guess is not None and (match is None or type(match.module).__name__ not in guess.families):
        reasons.append(f"looks like {' or '.join(map(_with_article, guess.families))}")
    lines += [f"  {reason}" for reason in reasons]
    return CheckpointError("\n".join(lines), _hint(source, match, guess))


def wrong_model(path: Path, source: ModelSource, match: Match, guess: Guess) -> CheckpointError:
    """For a file that holds all of the model's tensors, being a larger model's."""
    return CheckpointError(
        f"{path.name} is not of {source.name}: all its {len(match.fit.fitting)} tensors are there, "
        f"and {len(match.fit.unexpected)} more, {listed(list(match.fit.unexpected), 3)}",
        f"Did you mean --model {guess.name}? That fits perfectly.",
    )


def _hint(source: ModelSource, match: Match | None, guess: Guess | None) -> str:
    if guess is not None and guess.name is not None and guess.name != source.name:
        return f"Did you mean --model {guess.name}? That fits perfectly."
    if match is None:
        return (
            "Name the model that the file was saved from: --model NAME or --model net.py:factory."
        )
    return (
        "Name the model that the file was saved from (--model), or run with what fits and random "
        "numbers for the rest: --allow-missing."
    )


def _of_the_fit(
    found: Fit, match: Match, source: ModelSource, num_classes: int | None
) -> Iterator[str]:
    rows = {in_file[0] for in_file, in_model in _heads(found)}
    if len(rows) == 1:
        has = num_classes or source.classes or next(in_model[0] for _, in_model in _heads(found))
        yield f"written for {rows.pop()} classes, the model has {has}"
    for name, (in_file, in_model) in found.mismatched.items():
        if len(in_file) == len(in_model) == 4 and in_file[1] != in_model[1]:
            yield f"{name} takes {in_file[1]} channels in the file, {in_model[1]} in the model"
            break
    for name, (in_file, in_model) in found.mismatched.items():
        if "pos_emb" in name and len(in_file) == len(in_model) == 3:
            yield _positions(in_file, in_model)
            break
    prefixes = Counter(_leftover_prefixes(found))
    if prefixes:
        yield f"prefix {prefixes.most_common(1)[0][0]} left over"
    else:
        yield from _renamed(match)


def _of_the_file(path: Path, leaves: tuple[Leaf, ...]) -> Iterator[str]:
    if any(leaf.tensor.is_quantized or _QUANTIZED.search(".".join(leaf.parts)) for leaf in leaves):
        yield "looks quantized: integer weights do not go into a floating-point model"
    if re.search(r"-\d+-of-\d+", path.name):
        yield "looks like one shard of several: name the *.index.json, or the folder"


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIO' else 'a'} {name}"


def _heads(found: Fit) -> list[tuple[Size, Size]]:
    return [
        (in_file, in_model)
        for in_file, in_model in found.mismatched.values()
        if len(in_file) and in_file[1:] == in_model[1:]
    ]


def _positions(in_file: Size, in_model: Size) -> str:
    """A grid of positions, with a few tokens before it, is as fine as the picture was large."""
    sides = [math.isqrt(shape[1]) for shape in (in_file, in_model)]
    return (
        f"written for pictures of {sides[0]} x {sides[0]} patches, the model is built for "
        f"{sides[1]} x {sides[1]}: --model-arg image_size=..."
    )


def _leftover_prefixes(found: Fit) -> Iterator[str]:
    missing = set(found.missing)
    for name in (*found.unexpected, *found.outside):
        parts = name.split(".")
        for cut in range(1, len(parts)):
            if ".".join(parts[cut:]) in missing:
                yield ".".join(parts[:cut]) + "."
                break


def _renamed(match: Match) -> Iterator[str]:
    """The first missing tensor for which exactly one left-over one has the shape and kind."""
    left = {**match.fit.unexpected, **match.fit.outside}
    for name in match.fit.missing:
        shape = match.wanted.shapes[name]
        alike = [
            other
            for other, tensor in left.items()
            if shape and tensor.shape[1:] == shape[1:] and _same_kind(name, other)
        ]
        if len(alike) == 1:
            yield f"{alike[0]} could be what the model calls {name}"
            return


def _same_kind(name: str, other: str) -> bool:
    return name.rpartition(".")[2] == other.rpartition(".")[2]


def _shapes(found: Fit) -> str:
    def text(shape: Iterable[int]) -> str:
        return " x ".join(map(str, shape)) or "one number"

    return listed(
        [
            f"{name} ({text(in_file)} in the file, {text(in_model)} in the model)"
            for name, (in_file, in_model) in found.mismatched.items()
        ],
        3,
    )
