"""Heatmaps side by side: the classes of a picture, several methods, or two checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from hookscope.gradcam import Heatmap
from hookscope.gradcam.evaluation import Evaluation
from hookscope.maps.faithfulness import rank_correlation
from hookscope.models.labels import Labels
from hookscope.render.panel import Panel, Scale, shared_limits
from hookscope.render.verdicts import trust
from hookscope.run.explaining.asking import Finding

_DIFFERENCE = "RdBu_r"


@dataclass(frozen=True)
class Words:
    """What stands on a sheet; ``title`` is its heading."""

    labels: Labels
    title: str

    def of_class(self, heatmap: Heatmap) -> str:
        """The class as a caption names it."""
        if heatmap.class_index is None:
            return "nothing found"
        return self.labels.name(heatmap.class_index) or f"class {heatmap.class_index}"

    def predicted(self, heatmap: Heatmap) -> str:
        """What the network itself says of the picture."""
        if heatmap.predicted is None:
            return "finds nothing"
        index, probability = heatmap.predicted
        return f"says {self.labels.name(index) or f'class {index}'} {probability:.2f}"


def by_class(findings: Sequence[Finding], words: Words) -> list[Panel]:
    """One method: a panel a class, all on one scale."""
    return [
        Panel(
            one.heatmap.map,
            words.of_class(one.heatmap),
            one.heatmap.probability,
            unreadable(one.heatmap),
            (*_judged(one), *_scores(one.evaluation)),
        )
        for one in findings
    ]


def by_method(
    findings: Sequence[Finding], words: Words, cmap: str, limits: tuple[float, float] | None
) -> list[Panel]:
    """A panel a method, class after class; methods have no unit in common, so each its scale."""
    panels = []
    for one in findings:
        heatmap = one.heatmap
        own = limits or shared_limits([Panel(heatmap.map, "")])
        panels.append(
            Panel(
                heatmap.map,
                heatmap.method,
                None,
                unreadable(heatmap),
                (_class_and_probability(heatmap, words), *_judged(one), *_scores(one.evaluation)),
                Scale(own, cmap),
            )
        )
    return panels


def by_checkpoint(
    ours: Heatmap, theirs: Heatmap, names: tuple[str, str], words: Words
) -> list[Panel]:
    """The same map of two checkpoints on one scale, and what the second has more of."""
    panels = [
        Panel(one.map, name, one.probability, unreadable(one), (words.predicted(one),))
        for one, name in zip((ours, theirs), names, strict=True)
    ]
    alike = rank_correlation(ours.map, theirs.map)
    said = "unknown" if alike is None else _signed(alike)
    difference = theirs.map - ours.map
    panels.append(
        Panel(
            difference,
            f"{names[1]} less {names[0]}",
            None,
            _no_difference(difference, ours, theirs),
            (f"red: more heat in {names[1]}", f"rank correlation {said}"),
            Scale(_around_zero(difference), _DIFFERENCE, diverging=True),
        )
    )
    return panels


def unreadable(heatmap: Heatmap) -> str | None:
    """Why there is no heat to see, or None."""
    nothing_found = heatmap.note if heatmap.class_index is None else None
    return nothing_found or heatmap.degenerate


def _no_difference(difference: Tensor, ours: Heatmap, theirs: Heatmap) -> str | None:
    """Why a difference shows nothing: that one map is zero is no reason."""
    if not difference.isfinite().all():
        return "not finite"
    return unreadable(ours) and unreadable(theirs)


def _judged(finding: Finding) -> tuple[str, ...]:
    """Whether the panel's class is the true one, or that which the network took for it."""
    index, predicted = finding.heatmap.class_index, finding.heatmap.predicted
    if finding.truth is None or index is None:
        return ()
    if index == finding.truth:
        return ("the true class",)
    return ("predicted, and wrong",) if predicted and index == predicted[0] else ()


def _around_zero(difference: Tensor) -> tuple[float, float]:
    most = float(difference.abs().nan_to_num(0.0, 0.0, 0.0).max()) or 1.0
    return -most, most


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "\u2212")


def _class_and_probability(heatmap: Heatmap, words: Words) -> str:
    probability = Panel(None, "", heatmap.probability).details
    return ", ".join([words.of_class(heatmap), *probability])


def _scores(evaluation: Evaluation | None) -> tuple[str, ...]:
    """The evaluation in short lines, and what it comes to."""
    if evaluation is None or evaluation.average_drop is None:
        return ()
    head, everything = evaluation.randomised_head, evaluation.randomised_all
    random = [
        f"{what} {_signed(value)}"
        for what, value in (("random head", head), ("weights", everything))
        if value is not None
    ]
    verdict = trust(vars(evaluation))
    lines = (
        f"insertion {evaluation.insertion_auc:.2f}, deletion {evaluation.deletion_auc:.2f}",
        f"average drop {evaluation.average_drop:.2f}",
        ", ".join(random),
        verdict.label if verdict else "",
    )
    return tuple(line for line in lines if line)
