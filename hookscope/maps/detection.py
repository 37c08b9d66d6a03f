"""Class scores of a detection network: the confidence of its best box of a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


def is_detection(output: Any) -> bool:
    """Whether the output is torchvision's: a dict of boxes, labels and scores for each picture."""
    return (
        isinstance(output, (list, tuple))
        and len(output) > 0
        and all(
            isinstance(found, Mapping) and {"boxes", "labels", "scores"} <= set(found)
            for found in output
        )
    )


@dataclass(frozen=True)
class DetectionBoard:
    """The labels and scores of each picture's boxes.

    The score of a class is that of its best box, a probability as these networks give it; a class
    of which there is no box has score 0, no gradient, and a note that says so.
    """

    labels: tuple[Tensor, ...]
    confidences: tuple[Tensor, ...]

    @classmethod
    def of(cls, output: Sequence[Mapping[str, Tensor]]) -> DetectionBoard:
        return cls(
            tuple(found["labels"] for found in output), tuple(found["scores"] for found in output)
        )

    @property
    def count(self) -> None:
        return None

    def ranked(self, count: int) -> Tensor:
        """Labels by the score of their best box; as many columns as some picture has labels."""
        rows = []
        for labels, scores in zip(self.labels, self.confidences, strict=True):
            order = scores.detach().argsort(descending=True)
            rows.append(list(dict.fromkeys(labels[order].tolist()))[:count])
        columns = max(1, *(len(row) for row in rows))
        padded = [row + [-1] * (columns - len(row)) for row in rows]
        return torch.tensor(padded, device=self.labels[0].device)

    def scores(self, classes: Tensor) -> Tensor:
        best = []
        for picture, index in enumerate(classes.tolist()):
            own = self.confidences[picture][self.labels[picture] == index]
            best.append(own.max() if len(own) else own.new_zeros(()))
        return torch.stack(best)

    def probabilities(self, classes: Tensor) -> Tensor:
        return self.scores(classes).detach()

    def notes(self, classes: Tensor) -> list[str | None]:
        notes: list[str | None] = []
        for labels, index in zip(self.labels, classes.tolist(), strict=True):
            if index < 0:
                notes.append("nothing detected")
            else:
                notes.append(None if (labels == index).any() else f"no detection of class {index}")
        return notes

    def anchored(self, picture: int, class_index: int) -> Callable[[DetectionBoard], Tensor]:
        def score(board: DetectionBoard) -> Tensor:
            labels = [class_index] * len(board.labels)
            return board.scores(torch.tensor(labels, device=board.labels[0].device))

        return score

    anchored_probability = anchored
