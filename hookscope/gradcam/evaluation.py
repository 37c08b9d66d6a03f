"""Whether a heatmap may be believed: what its marking is worth, and what it hangs on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import torch
from torch import Tensor, nn

from hookscope.errors import ModelError
from hookscope.gradcam.again import Key, by_key, classes_of, key_of
from hookscope.gradcam.borrowing import borrowed
from hookscope.gradcam.heatmap import Heatmap
from hookscope.gradcam.parts import Parts
from hookscope.gradcam.question import Question
from hookscope.gradcam.reading import asked
from hookscope.gradcam.scrambling import head_of, scrambled
from hookscope.hooks.dressing import Dress, dressed
from hookscope.maps.faithfulness import (
    STEPS,
    area,
    average_drop,
    deletions,
    insertions,
    over_picture,
    rank_correlation,
)
from hookscope.maps.targets import Board

DRAWS = 3
"""Networks with random weights that a map is compared with; one alone is a matter of luck."""

PASSES = 2 + 2 * STEPS + 2 * DRAWS
"""Forward passes that a map's evaluation takes, where a map itself takes one."""

Explainer = Callable[[nn.Module, Tensor, Tensor], Sequence[Sequence[Heatmap]]]
"""Network, pictures N x C x H x W and classes N x K to heatmaps, as ``explain`` gives them."""

_Again = dict[Key, Heatmap]


@dataclass(frozen=True)
class Evaluation:
    """The numbers for one map; all None for a map that shows nothing.

    ``average_drop``: 0 to 1, low is good; ``increase``: whether the class gains confidence where
    only what the map marks is left; ``deletion_auc``: low is good; ``insertion_auc``: high is
    good (definitions and sources: ``hookscope.maps.faithfulness``). ``randomised_head``,
    ``randomised_all``: the mean rank correlation with the maps of three networks whose head, or
    all of whose weights, are random; near 0 is good. A map that vanishes with random weights has
    nothing in common with the one it was: 0.
    """

    average_drop: float | None = None
    increase: bool | None = None
    deletion_auc: float | None = None
    insertion_auc: float | None = None
    randomised_head: float | None = None
    randomised_all: float | None = None


class Evaluator:
    """Evaluates heatmaps of one network, and of replicas that share its parameters.

    ``explainer`` makes the maps again for networks with random weights: it is called with the
    network while those stand in the places of its own. Threads may share an evaluator, each with
    its own replica.
    """

    def __init__(self, explainer: Explainer, question: Question) -> None:
        self._explainer = explainer
        self._question = question
        self._dresses: list[Dress] | None = None
        self._head: list[str] = []
        self._lock = threading.Lock()

    def evaluations(
        self, model: nn.Module, x: Tensor, found: Sequence[Sequence[Heatmap]]
    ) -> list[list[Evaluation]]:
        """One for each of the heatmaps ``found`` on ``x``, which is N x C x H x W."""
        with borrowed(model, x) as module:
            again = {
                kind: [self._maps_in(dress, module, x, found) for dress in dresses]
                for kind, dresses in self._random(module, x).items()
            }
            evaluations = []
            for n, heatmaps in enumerate(found):
                worth = _Worth(module, x[n : n + 1], self._question)
                drawn = {kind: [maps[n] for maps in draws] for kind, draws in again.items()}
                evaluations.append([_evaluation(one, worth, drawn) for one in heatmaps])
        return evaluations

    def _random(self, model: nn.Module, x: Tensor) -> dict[str, list[Dress]]:
        """The random weights by kind, drawn once; the head is looked for until it is found."""
        with self._lock:
            if self._dresses is None:
                seeds = range(self._question.seed, self._question.seed + DRAWS)
                self._dresses = [dress for seed in seeds if (dress := scrambled(model, seed))]
            if self._dresses and not self._head:
                self._head = head_of(model, x, self._question)
            heads: list[Dress] = [
                {name: dress[name] for name in self._head} for dress in self._dresses if self._head
            ]
            return {"head": heads, "all": self._dresses}

    def _maps_in(
        self, dress: Dress, model: nn.Module, x: Tensor, found: Sequence[Sequence[Heatmap]]
    ) -> list[_Again]:
        """The maps of the same classes in a network with other weights, picture by picture."""
        with dressed(model, dress):
            try:
                again = self._explainer(model, x, classes_of(found))
            except ModelError:  # with these weights the layer does not run
                return [{} for _ in found]
        return [by_key(row) for row in again]


class _Worth:
    """What maps of one picture (1 x C x H x W) mark, measured on the network."""

    def __init__(self, model: nn.Module, x: Tensor, question: Question) -> None:
        self._model = model
        self._x = x
        self._question = question
        self._board: Board | None = None
        self._parts = Parts(question.batch_size)

    def of(self, heatmap: Heatmap, class_index: int) -> Evaluation:
        """All but the comparison with random weights."""
        if self._board is None:
            self._board = asked(lambda: self._model(self._x.clone()), self._x, self._question)
        probability = self._board.anchored_probability(0, class_index)
        picture = self._x[0]
        size = picture.shape[-2], picture.shape[-1]
        weights = over_picture(heatmap.map.to(picture), size, heatmap.extent)
        variants = [
            lambda: picture * weights,
            *deletions(picture, weights),
            *insertions(picture, weights),
        ]
        marked, *curves = self._parts.over(variants, partial(self._chances, probability)).tolist()
        whole = probability(self._board)[0].item()
        return Evaluation(
            average_drop=average_drop(whole, marked),
            increase=marked > whole,
            deletion_auc=area([whole, *curves[:STEPS]]),
            insertion_auc=area([*curves[STEPS:], whole]),
        )

    def _chances(
        self, probability: Callable[[Board], Tensor], variants: Sequence[Callable[[], Tensor]]
    ) -> Tensor:
        """The class's probability on each of the variants."""
        pictures = torch.stack([variant() for variant in variants])
        return probability(asked(lambda: self._model(pictures), pictures, self._question))


def _evaluation(heatmap: Heatmap, worth: _Worth, again: dict[str, list[_Again]]) -> Evaluation:
    if heatmap.class_index is None or heatmap.degenerate:
        return Evaluation()
    key = key_of(heatmap)

    def likeness(draws: list[_Again]) -> float | None:
        maps = [again[key].map for again in draws if key in again]
        alike = [rank_correlation(heatmap.map, one) or 0.0 for one in maps]
        return fmean(alike) if alike else None

    return replace(
        worth.of(heatmap, heatmap.class_index),
        randomised_head=likeness(again["head"]),
        randomised_all=likeness(again["all"]),
    )
