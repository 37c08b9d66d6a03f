"""Class scores of a segmentation network: one logit a class and a pixel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SegmentationBoard:
    """N x K x H x W logits; one channel means class 1 against class 0.

    The score of a class is the sum of its logits over the pixels predicted as it, or over all
    pixels where there are none. Classes rank by the number of their pixels; ``background`` comes
    last. The probability is the mean over the same pixels.
    """

    logits: Tensor
    background: int | None = None

    @property
    def count(self) -> int:
        return max(2, self.logits.shape[1])

    def ranked(self, count: int) -> Tensor:
        shares = torch.nn.functional.one_hot(self._predicted().flatten(1), self.count).sum(1)
        if self.background is not None:
            shares[:, self.background] = -1
        return shares.topk(min(count, self.count), dim=1).indices

    def scores(self, classes: Tensor) -> Tensor:
        return (self._logits_of(classes) * self._region(classes)).sum((1, 2))

    def probabilities(self, classes: Tensor) -> Tensor:
        region = self._region(classes)
        return (self._chances_of(classes) * region).sum((1, 2)) / region.sum((1, 2))

    def notes(self, classes: Tensor) -> list[str | None]:
        found = (self._predicted() == classes[:, None, None]).flatten(1).any(1)
        return [
            None if any_pixel else f"no pixel is predicted as class {index}: summed over all pixels"
            for any_pixel, index in zip(found.tolist(), classes.tolist(), strict=True)
        ]

    def anchored(self, picture: int, class_index: int) -> Callable[[SegmentationBoard], Tensor]:
        region = self._region(self._all(class_index))[picture]
        return lambda board: (board._logits_of(board._all(class_index)) * region).sum((1, 2))

    def anchored_probability(
        self, picture: int, class_index: int
    ) -> Callable[[SegmentationBoard], Tensor]:
        region = self._region(self._all(class_index))[picture]

        def mean(board: SegmentationBoard) -> Tensor:
            chances = board._chances_of(board._all(class_index))
            return (chances * region).sum((1, 2)) / region.sum()

        return mean

    def _all(self, class_index: int) -> Tensor:
        """The same class for every picture."""
        return torch.full((len(self.logits),), class_index, device=self.logits.device)

    def _predicted(self) -> Tensor:
        logits = self.logits.detach()
        return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(1)

    def _logits_of(self, classes: Tensor) -> Tensor:
        if self.logits.shape[1] == 1:
            return self.logits[:, 0] * (2 * classes - 1)[:, None, None]
        return self.logits[torch.arange(len(classes)), classes]

    def _chances_of(self, classes: Tensor) -> Tensor:
        logits = self.logits.detach()
        if logits.shape[1] == 1:
            return self._logits_of(classes).detach().sigmoid()
        return logits.softmax(1)[torch.arange(len(classes)), classes]

    def _region(self, classes: Tensor) -> Tensor:
        own = self._predicted() == classes[:, None, None]
        empty = ~own.flatten(1).any(1)
        return (own | empty[:, None, None]).to(self.logits.dtype)
