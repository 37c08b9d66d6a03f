"""Class scores, wherever a network puts them: what a heatmap is asked about.

``read_output`` finds the scores in a network's output and returns a board: ``LogitBoard``,
``BinaryBoard``, ``SegmentationBoard`` or ``DetectionBoard``. All of them answer the same questions
for a batch of N pictures and a class for each of them (N integers); a class of -1 means that a
picture has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from hookscope.errors import TargetError, did_you_mean
from hookscope.maps.detection import DetectionBoard, is_detection
from hookscope.maps.segmentation import SegmentationBoard

Scorer = Callable[[Any], Tensor]


class Board(Protocol):
    """The class scores of one batch."""

    @property
    def count(self) -> int | None:
        """How many classes there are; None where the output does not tell (detection)."""

    def ranked(self, count: int) -> Tensor:
        """The ``count`` best classes of each picture, N x count, best first; -1 for none."""

    def scores(self, classes: Tensor) -> Tensor:
        """The score of each picture's class, N, with its graph: the logit, not a probability."""

    def probabilities(self, classes: Tensor) -> Tensor:
        """The probability of each picture's class, N, without a graph."""

    def notes(self, classes: Tensor) -> list[str | None]:
        """What has to be said about each picture's score."""

    def anchored(self, picture: int, class_index: int) -> Callable[[Any], Tensor]:
        """The same question about one picture, asked of another board of B variants of it."""

    def anchored_probability(self, picture: int, class_index: int) -> Callable[[Any], Tensor]:
        """As ``anchored``, the answer being a probability."""


@dataclasses.dataclass(frozen=True)
class LogitBoard:
    """N x K scores of K classes.

    ``multi_label``: each class is a yes or no of its own, so that a probability is a sigmoid and
    not a softmax. Scores that are probabilities already, because the model ends in a softmax (or,
    multi-label, in a sigmoid), are their own probabilities.
    """

    logits: Tensor
    multi_label: bool = False

    @property
    def count(self) -> int:
        return self.logits.shape[1]

    def ranked(self, count: int) -> Tensor:
        return self.logits.detach().topk(min(count, self.count), dim=1).indices

    def scores(self, classes: Tensor) -> Tensor:
        return self.logits.gather(1, classes.unsqueeze(1)).squeeze(1)

    def probabilities(self, classes: Tensor) -> Tensor:
        logits = self.logits.detach()
        chances = logits.sigmoid() if self.multi_label else logits.softmax(1)
        already = ((logits >= 0) & (logits <= 1)).all(1, keepdim=True)
        if not self.multi_label:
            already &= (logits.sum(1, keepdim=True) - 1).abs() < 1e-3
        chances = torch.where(already, logits, chances)
        return chances.gather(1, classes.unsqueeze(1)).squeeze(1)

    def notes(self, classes: Tensor) -> list[str | None]:
        return [None] * len(classes)

    def anchored(self, picture: int, class_index: int) -> Callable[[LogitBoard], Tensor]:
        return lambda board: board.logits[:, class_index]

    def anchored_probability(
        self, picture: int, class_index: int
    ) -> Callable[[LogitBoard], Tensor]:
        return lambda board: board.probabilities(
            torch.full((len(board.logits),), class_index, device=board.logits.device)
        )


@dataclasses.dataclass(frozen=True)
class BinaryBoard:
    """One logit a picture (N): positive speaks for class 1, negative for class 0."""

    logit: Tensor

    @property
    def count(self) -> int:
        return 2

    def ranked(self, count: int) -> Tensor:
        best = (self.logit.detach() > 0).long()
        return torch.stack([best, 1 - best], dim=1)[:, :count]

    def scores(self, classes: Tensor) -> Tensor:
        return self.logit * (2 * classes - 1)

    def probabilities(self, classes: Tensor) -> Tensor:
        return self.scores(classes).detach().sigmoid()

    def notes(self, classes: Tensor) -> list[str | None]:
        return [None] * len(classes)

    def anchored(self, picture: int, class_index: int) -> Callable[[BinaryBoard], Tensor]:
        return lambda board: board.logit * (2 * class_index - 1)

    def anchored_probability(
        self, picture: int, class_index: int
    ) -> Callable[[BinaryBoard], Tensor]:
        return lambda board: (board.logit.detach() * (2 * class_index - 1)).sigmoid()


def read_output(
    output: Any,
    key: str | None = None,
    *,
    multi_label: bool = False,
    background: int | None = None,
) -> Board:
    """The board of a network's output.

    ``key``: which part of it, where it is a dict, tuple or dataclass (``logits``, ``0``,
    ``heads.main``); without one, ``logits``, then ``out``, then the first 2-D tensor, then the
    first 4-D, then the first 1-D one. ``background``: a class that segmentation does not take as
    the predicted one while there is another. Raises ``TargetError`` where there are no scores.
    """
    if key is not None:
        output = _part(output, key)
    if is_detection(output):
        return DetectionBoard.of(output)
    scores = _likely_scores(output)
    if not scores.is_floating_point():
        raise TargetError(f"the output holds {scores.dtype} numbers, which are no class scores")
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if scores.dim() == 4 and scores.shape[2:] == (1, 1):
        scores = scores.flatten(1)
    if scores.dim() == 4:
        return SegmentationBoard(scores, background)
    if scores.dim() == 1:
        return BinaryBoard(scores)
    if scores.dim() == 2:
        return (
            BinaryBoard(scores[:, 0]) if scores.shape[1] == 1 else LogitBoard(scores, multi_label)
        )
    raise TargetError(
        f"an output of shape {tuple(scores.shape)} holds no class scores",
        "Class scores are N x classes, or N x classes x H x W for segmentation; "
        "--output-key chooses among several outputs.",
    )


def check_classes(classes: Sequence[int], count: int | None) -> None:
    """Raises ``TargetError`` for a class that is negative or beyond ``count`` classes."""
    for index in classes:
        if index < 0 or (count is not None and index >= count):
            reach = f"it has classes 0 to {count - 1}" if count else "classes count from 0"
            raise TargetError(f"the model has no class {index}: {reach}")


def _part(output: Any, key: str) -> Any:
    found, way = output, key
    names = dict(_children(found))
    while way:
        # A key may itself contain dots: the longest one that fits is taken.
        fitting = [name for name in names if way == name or way.startswith(f"{name}.")]
        if not fitting:
            known = [name for name in names if name]
            raise TargetError(
                f"the model's output has no {key!r}",
                f"It has {', '.join(known)}. {did_you_mean(key, known)}"
                if known
                else "It is one tensor: leave --output-key away.",
            )
        name = max(fitting, key=len)
        found, way = names[name], way[len(name) + 1 :]
        names = dict(_children(found))
    return found


def _likely_scores(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    named = dict(_children(output))
    for usual in ("logits", "out"):
        if isinstance(named.get(usual), Tensor):
            return named[usual]
    tensors = [tensor for tensor in _tensors(output) if tensor.is_floating_point()]
    for dimensions in (2, 4, 1):
        for tensor in tensors:
            if tensor.dim() == dimensions:
                return tensor
    raise TargetError(
        f"the model's output ({type(output).__name__}) holds no class scores",
        "Expected a tensor N x classes somewhere in it; --output-key says where.",
    )


def _children(output: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a dict, dataclass, named tuple, tuple or list, by name and by position."""
    if isinstance(output, Mapping):
        yield from ((str(name), value) for name, value in output.items())
    elif dataclasses.is_dataclass(output) and not isinstance(output, type):
        for field in dataclasses.fields(output):
            yield field.name, getattr(output, field.name)
    elif isinstance(output, (tuple, list)):
        yield from zip(getattr(output, "_fields", ()), output, strict=False)
        yield from ((str(index), value) for index, value in enumerate(output))


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    else:
        for _, value in _children(output):
            yield from _tensors(value)
