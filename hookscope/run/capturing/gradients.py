"""Gradients of a class score, or of a loss, at the outputs of layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from hookscope.errors import TargetError
from hookscope.gradcam.borrowing import borrowed
from hookscope.gradcam.question import Question
from hookscope.gradcam.reading import asked
from hookscope.hooks.cut import Cut
from hookscope.hooks.results import Activation
from hookscope.layers.addresses import Address, Selection, chosen
from hookscope.layers.axes import Axes
from hookscope.layers.probe import Probe
from hookscope.maps.cam import full_precision
from hookscope.maps.segmentation import SegmentationBoard
from hookscope.maps.targets import BinaryBoard, Board, LogitBoard, check_classes
from hookscope.models.labels import Labels
from hookscope.run.capturing.apart import AxesKnown
from hookscope.run.capturing.taps import Taken, addresses_of
from hookscope.run.forward import failures_in_words

# fp16 turns gradients under 6e-8 to zero; what is differentiated is scaled up on the way back.
_SCALES = {"fp16": 256.0}


@dataclass(frozen=True)
class Target:
    """What is differentiated: the score of a class (None: each picture's predicted one), or the
    loss with that class as the truth. ``output_key``: which part of the output has the scores."""

    class_index: int | None = None
    loss: Literal["cross-entropy"] | None = None
    output_key: str | None = None


@dataclass(frozen=True)
class GradientTap:
    """One forward and one backward pass a batch, the graph cut at the first of the layers."""

    selections: Sequence[Selection]
    probe: Probe
    target: Target
    labels: Labels
    precision: str = "fp32"
    what: str = "gradient"
    suffixes: tuple[str, ...] = ("gradient",)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"what": self.what, "precision": self.precision, **asdict(self.target)}

    @cached_property
    def expected(self) -> Sequence[Address]:
        if self.probe.problem:
            return []
        return chosen(self.selections, [info.address for info in self.probe.tensors])[0]

    def axes(self, address: Address, tensor: Tensor, x: Tensor) -> Axes:
        return self._axes_known.of_output(address, tensor, x)

    def take(self, network: nn.Module, x: Tensor) -> Taken:
        with failures_in_words(x), borrowed(network, x) as module:
            cut = Cut(module, self._question.addresses)
            gradients, about = self._backward(cut, x, whole_graph=False)
            if any(gradient is None for gradient in gradients):
                # Perhaps the model switches gradients off on the way (a frozen backbone).
                gradients, about = self._backward(cut, x, whole_graph=True)
        results = []
        for held, gradient in zip(cut.held, gradients, strict=True):
            if gradient is None:  # what the target does not depend on has a gradient too: zero
                gradient = full_precision(torch.zeros_like(held.tensor.detach()))
            address = held.address
            results.append(Activation(address.layer, address.call or 1, address.item, gradient))
        return Taken(results, about)

    def _backward(
        self, cut: Cut, x: Tensor, *, whole_graph: bool
    ) -> tuple[list[Tensor | None], list[dict[str, Any]]]:
        """The gradient at each tensor that the cut holds, and what was differentiated."""
        with torch.enable_grad():
            board = asked(lambda: cut.run(x.clone(), whole_graph=whole_graph), x, self._question)
            classes = self._classes(board, x)
            scores = board.scores(classes)
            losses = None if self.target.loss is None else cross_entropy(board, classes)
            target = (scores if losses is None else losses).sum()
        scale = _SCALES.get(self.precision, 1.0)
        gradients = [
            None if gradient is None else full_precision(gradient) / scale
            for gradient in cut.gradients(target, scale=scale)
        ]
        return gradients, self._about(board, classes, scores, losses)

    def _classes(self, board: Board, x: Tensor) -> Tensor:
        index = self.target.class_index
        if index is None:
            return board.ranked(1)[:, 0]
        check_classes([index], board.count)
        return torch.full((len(x),), index, device=x.device)

    def _about(
        self, board: Board, classes: Tensor, scores: Tensor, losses: Tensor | None
    ) -> list[dict[str, Any]]:
        about: list[dict[str, Any]] = []
        for index, score, probability, note in zip(
            classes.tolist(),
            scores.tolist(),
            board.probabilities(classes).tolist(),
            board.notes(classes),
            strict=True,
        ):
            there = index >= 0  # a detection network may have found nothing
            one = {
                "class_index": index if there else None,
                "class_name": self.labels.name(index),
                "score": score if there else None,
                "probability": probability if there else None,
            }
            about.append({**one, "reason": note} if note else one)
        if losses is not None:
            for one, loss in zip(about, losses.tolist(), strict=True):
                one["loss"] = loss
        return about

    @cached_property
    def _question(self) -> Question:
        addresses = tuple(dict.fromkeys(addresses_of(self.selections)))
        return Question(addresses, output_key=self.target.output_key, precision=self.precision)

    @cached_property
    def _axes_known(self) -> AxesKnown:
        return AxesKnown(self.probe)


def cross_entropy(board: Board, classes: Tensor) -> Tensor:
    """The cross-entropy of each picture with its class as the truth, N, with its graph.

    Of a segmentation network the mean over the pixels, all of which are that class. Raises
    ``TargetError`` for detections, which have no such loss.
    """
    if isinstance(board, LogitBoard):
        return functional.cross_entropy(board.logits, classes, reduction="none")
    if isinstance(board, BinaryBoard):
        return functional.softplus(-board.scores(classes))
    if isinstance(board, SegmentationBoard):
        logits = board.logits
        if logits.shape[1] == 1:
            truth = classes.to(logits.dtype)[:, None, None, None].expand_as(logits)
            losses = functional.binary_cross_entropy_with_logits(logits, truth, reduction="none")
        else:
            pixels = classes[:, None, None].expand(-1, *logits.shape[2:])
            losses = functional.cross_entropy(logits, pixels, reduction="none")
        return losses.flatten(1).mean(1)
    raise TargetError(
        "detections have no cross-entropy with one class", "Leave --loss away: --class scores them."
    )
