"""Maps by asking the network again for every channel: scorecam and ablationcam."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from hookscope.errors import TargetError
from hookscope.gradcam.parts import REFUSALS, Parts
from hookscope.gradcam.question import Question
from hookscope.gradcam.reading import asked
from hookscope.hooks.fanout import resumed
from hookscope.layers.addresses import Address
from hookscope.layout import Layout
from hookscope.maps import cam
from hookscope.maps.perturbation import (
    ablation_weights,
    masks,
    score_weights,
    without_channels,
)
from hookscope.maps.segmentation import SegmentationBoard
from hookscope.maps.targets import Board

_FANOUT_ELEMENTS = 2**24
"""The layer's output and the scores of one fanned-out batch stay under this many numbers each."""


class Perturbation:
    """Asks the network about variants of the pictures ``x``, whose board and classes are given.

    ``told`` hears how many channels were tried. A class of -1 (there is none) gets a zero map.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        question: Question,
        board: Board,
        classes: Tensor,
        told: Callable[[int], None],
    ) -> None:
        self._model = model
        self._x = x
        self._question = question
        self._told = told
        self._parts = Parts(question.batch_size, told)
        self._columns = classes.shape[1]
        self._board = board
        self._scorers = [
            [(k, board.anchored(n, c)) for k, c in enumerate(row) if c >= 0]
            for n, row in enumerate(classes.tolist())
        ]

    def maps(
        self, method: str, address: Address, layout: Layout, activations: Tensor
    ) -> list[Tensor]:
        """N x h x w for each column of the classes; ``activations`` are N x C x h x w."""
        activations = cam.full_precision(activations)
        count = activations.shape[1]
        weights = activations.new_zeros((self._columns, len(activations), count))
        for n, scorers in enumerate(self._scorers):
            if not scorers:
                self._told(count)
                continue
            if method == "scorecam":
                found = score_weights(self._masked_scores(n, activations[n]))
            else:
                with_all, without = self._scores_without(n, address, layout, activations[n])
                found = ablation_weights(with_all, without)
            for (column, _), row in zip(scorers, found, strict=True):
                weights[column, n] = row
        return [cam.weighted(activations, weights[column]) for column in range(self._columns)]

    def _masked_scores(self, n: int, activations: Tensor) -> Tensor:
        """The score of each of the picture's classes under each channel's mask, K x C."""
        picture = self._x[n : n + 1]
        count = len(activations)
        size = (picture.shape[-2], picture.shape[-1])
        flat = activations.flatten(1)
        varied = (flat.amax(1) > flat.amin(1)).nonzero().flatten()
        scores = activations.new_empty((len(self._scorers[n]), count))
        if len(varied) < count:
            # A constant channel masks everything: one empty picture answers for all of them.
            scores[:] = self._ask(n, lambda: self._model(torch.zeros_like(picture)))
            self._told(count - len(varied))

        def masked(channels: Sequence[int]) -> Tensor:
            pictures = picture * masks(activations[channels], size).to(picture.dtype)
            return self._ask(n, lambda: self._model(pictures))

        if len(varied):
            scores[:, varied] = self._parts.over(varied.tolist(), masked).to(scores.dtype)
        return scores

    def _scores_without(
        self, n: int, address: Address, layout: Layout, activations: Tensor
    ) -> tuple[Tensor, Tensor]:
        """For each of the picture's classes its score, K x 1, and that without each channel, K x C.

        The network goes on from the layer where it bears that, and runs whole where it does not.
        """
        count = len(activations)
        picture = self._x[n : n + 1]
        elements = activations.numel()
        if isinstance(self._board, SegmentationBoard):
            elements = max(elements, self._board.logits[n].numel())
        many = max(1, _FANOUT_ELEMENTS // elements)
        clean = torch.stack([scorer(self._board)[n] for _, scorer in self._scorers[n]])
        clean = clean.detach().unsqueeze(1)
        scores = activations.new_empty((len(clean), count))

        def whole(channels: Sequence[int]) -> Tensor:
            copies = picture.expand(len(channels), *picture.shape[1:]).clone()
            variants = without_channels(layout, channels)
            return self._ask(n, lambda: resumed(self._model, copies, address, variants))

        for start in range(0, count, many):
            channels = range(start, min(start + many, count))
            found = self._resumed_scores(n, picture, address, layout, channels, clean)
            if found is None:
                rest = range(start, count)
                scores[:, rest] = self._parts.over(rest, whole).to(scores.dtype)
                break
            scores[:, channels] = found.to(scores.dtype)
            self._told(len(channels))
        return clean.to(scores.dtype), scores

    def _resumed_scores(
        self,
        n: int,
        picture: Tensor,
        address: Address,
        layout: Layout,
        channels: Sequence[int],
        clean: Tensor,
    ) -> Tensor | None:
        """K x B scores of a pass that fans out at the layer; None where the network mixes it up.

        The first and the last variant lack nothing, and so must have the clean score.
        """
        variants = without_channels(layout, [None, *channels, None])
        try:
            found = self._ask(n, lambda: resumed(self._model, picture.clone(), address, variants))
        except (*REFUSALS, IndexError, TargetError):
            return None  # a batch of one from below the layer met the larger one
        if found.shape[1] != len(channels) + 2:
            return None
        tolerance = 1e-3 if self._question.precision == "fp32" else 3e-2
        ends = found[:, [0, -1]].to(clean.dtype)
        if ((ends - clean).abs() > tolerance * clean.abs().max()).any():
            return None
        return found[:, 1:-1]

    def _ask(self, n: int, run: Callable[[], object]) -> Tensor:
        """The scores of the picture's classes on what ``run`` gives for B variants, K x B."""
        board = asked(run, self._x, self._question)
        return torch.stack([scorer(board) for _, scorer in self._scorers[n]])
