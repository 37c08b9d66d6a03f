"""What a run asks a network about its pictures: heatmaps, and whether to believe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.errors import PictureError, TargetError
from hookscope.gradcam import Heatmap, explain
from hookscope.gradcam.evaluation import Evaluation, Evaluator
from hookscope.gradcam.question import Question
from hookscope.layers.addresses import Address
from hookscope.layout import Layout
from hookscope.models.opening import OpenedModel
from hookscope.output.names import Sample
from hookscope.run.explaining.truth import Truths
from hookscope.run.explaining.versus import Rival
from hookscope.run.forward import failures_in_words, on_device
from hookscope.run.preparing import Prepared

_BATCH = 16  # variants of a picture in one pass


@dataclass(frozen=True)
class Asked:
    """The settings of all heatmaps of a run; see ``explain``."""

    classes: tuple[int, ...] | None = None
    top_k: int | None = None
    methods: tuple[str, ...] = ("gradcam",)
    fuse: bool = False
    smooth: int = 0
    flip: bool = False
    output_key: str | None = None
    seed: int = 0
    precision: str = "fp32"


@dataclass(frozen=True)
class Finding:
    """One heatmap and what goes with it; ``rival``: the same of the second checkpoint."""

    heatmap: Heatmap
    evaluation: Evaluation | None = None
    rival: Heatmap | None = None
    truth: int | None = None


class Asking:
    """All layers, classes and methods of a batch from as few passes as they allow.

    ``evaluate``: each map is put to the test. ``rival``: the same questions to a second
    checkpoint. ``truths``: where the network is wrong, a heatmap for the true class too, unless
    classes were named. ``progress(done, total)`` counts the channels of the slow methods.
    """

    def __init__(
        self,
        opened: OpenedModel,
        addresses: Sequence[Address],
        layouts: Mapping[str, Layout],
        asked: Asked,
        *,
        evaluate: bool = False,
        rival: Rival | None = None,
        truths: Truths | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.addresses = addresses
        self.asked = asked
        self.rival = rival
        self._opened = opened
        self._truths = truths
        self._explain: Callable[..., list[list[Heatmap]]] = partial(
            explain,
            layers=addresses,
            layouts=layouts,
            background=_background(opened),
            batch_size=opened.batch_size or _BATCH,
            **{k: value for k, value in asdict(asked).items() if k not in ("classes", "top_k")},
        )
        self._progress = progress
        self._evaluator: Evaluator | None = None
        if evaluate and addresses:
            question = Question(
                tuple(addresses),
                output_key=asked.output_key,
                background=_background(opened),
                seed=asked.seed,
                precision=asked.precision,
                batch_size=opened.batch_size or _BATCH,
            )
            self._evaluator = Evaluator(self._again, question)

    def findings(self, network: nn.Module, batch: Sequence[Prepared]) -> list[list[Finding]]:
        """For each picture a list by layer and call, class, and method."""
        x = on_device([prepared.tensor for prepared in batch], self._opened.device)
        with failures_in_words(x):
            found = self._explain(
                network,
                x,
                classes=self.asked.classes,
                top_k=self.asked.top_k,
                progress=self._progress,
            )
            trues = [self.truth(prepared.sample) for prepared in batch]
            if self.asked.classes is None:
                found = self._with_true_classes(network, x, found, trues)
            findings = [
                [Finding(one, truth=true) for one in heatmaps]
                for heatmaps, true in zip(found, trues, strict=True)
            ]
            if self._evaluator is not None:
                evaluated = self._evaluator.evaluations(network, x, found)
                findings = _joined(findings, evaluated, "evaluation")
            if self.rival is not None:
                theirs = self.rival.heatmaps(self._again, network, x, found)
                findings = _joined(findings, theirs, "rival")
        return findings

    def unevaluated(self) -> Asking:
        """The same questions without the tests."""
        same = copy(self)
        same._evaluator = None
        return same

    def truth(self, sample: Sample) -> int | None:
        """The picture's true class, where it is known."""
        return self._truths.of(sample) if self._truths else None

    def settings(self, sample: Sample) -> dict[str, Any]:
        """What changes the record or the picture of a map, apart from ``asked``."""
        added = {
            "evaluate": self._evaluator is not None or None,
            "versus": self.rival and self.rival.digest,
            "truth": self.truth(sample),
        }
        return {name: value for name, value in added.items() if value is not None}

    def _again(self, network: nn.Module, x: Tensor, classes: Tensor) -> list[list[Heatmap]]:
        return self._explain(network, x, classes=classes)

    def _with_true_classes(
        self,
        network: nn.Module,
        x: Tensor,
        found: list[list[Heatmap]],
        trues: Sequence[int | None],
    ) -> list[list[Heatmap]]:
        """The maps of the true class too, where the network did not think of it."""
        missed = {
            n: true
            for n, true in enumerate(trues)
            if true is not None and all(one.class_index != true for one in found[n])
        }
        if not missed:
            return found
        order = {address: place for place, address in enumerate(_addresses(found))}
        try:
            more = self._again(network, x[list(missed)], torch.tensor(list(missed.values())))
        except TargetError as error:  # a class that only the network itself could refuse
            raise PictureError(f"--truth: {error}") from error
        for n, heatmaps in zip(missed, more, strict=True):
            found[n] = sorted(found[n] + heatmaps, key=lambda one: order[one.address])
        return found


def _joined(
    findings: list[list[Finding]], values: Sequence[Sequence[Any]], field: str
) -> list[list[Finding]]:
    return [
        [replace(finding, **{field: value}) for finding, value in zip(*rows, strict=True)]
        for rows in zip(findings, values, strict=True)
    ]


def _addresses(found: list[list[Heatmap]]) -> list[Address]:
    return list(dict.fromkeys(one.address for heatmaps in found for one in heatmaps))


def _background(opened: OpenedModel) -> int | None:
    """The class that segmentation names when there is nothing: no answer by itself."""
    first = opened.labels.name(0) or ""
    return 0 if first.strip("_").casefold() == "background" else None
