"""Whether a heatmap is to be believed, and whether the network was right: in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Spearman's rank correlation with the map of a network whose weights are random (Adebayo et al.,
# "Sanity Checks for Saliency Maps", 2018, who give no limit): half of the ranks' variance in
# common is too much, a quarter is a reason to look twice.
_SAME = 0.7
_ALIKE = 0.5


@dataclass(frozen=True)
class Verdict:
    """``label``: a word or two for a badge; ``sentence``: what it means for the reader."""

    kind: Literal["trust", "truth"]
    level: Literal["good", "caution", "bad"]
    label: str
    sentence: str


def verdicts(record: Mapping[str, Any]) -> Iterator[Verdict]:
    """What is to be said of a record; nothing of one that was neither evaluated nor compared."""
    evaluation = record.get("evaluation")
    if isinstance(evaluation, Mapping):
        found = trust(evaluation)
        if found:
            yield found
    found = truth(record)
    if found:
        yield found


def trust(evaluation: Mapping[str, Any]) -> Verdict | None:
    """What the numbers of ``--evaluate`` say; None when they are unknown."""
    everything, head = (_number(evaluation, f"randomised_{what}") for what in ("all", "head"))
    deletion, insertion = (_number(evaluation, f"{what}_auc") for what in ("deletion", "insertion"))
    if everything is not None and everything >= _SAME:
        return Verdict(
            "trust",
            "bad",
            "do not read",
            "This map hardly changes when the network's weights are scrambled: do not read it.",
        )
    if head is not None and head >= _SAME:
        return Verdict(
            "trust",
            "caution",
            "not about the class",
            "This map hardly changes when the classifier is scrambled: it shows what the network "
            "looks at, not why it chose this class.",
        )
    if deletion is not None and insertion is not None and insertion <= deletion:
        return Verdict(
            "trust",
            "caution",
            "marks little",
            "Showing the hottest places brings the class back no better than hiding them takes it "
            "away: other places may matter more.",
        )
    if everything is not None and everything >= _ALIKE:
        return Verdict(
            "trust",
            "caution",
            "read with care",
            "A good part of this map stays when the network's weights are scrambled: read it with "
            "care.",
        )
    if everything is None and head is None:
        return None
    return Verdict(
        "trust",
        "good",
        "sound",
        "This map changes when the network's weights are scrambled, as it should.",
    )


def truth(record: Mapping[str, Any]) -> Verdict | None:
    """Whether the predicted class is the true one; None where the true one is not known.

    ``record["truth"]``: ``correct`` and, if known, ``class_name`` or ``class_index`` of the true
    class and ``predicted_name`` or ``predicted_index``.
    """
    found = record.get("truth")
    if not isinstance(found, Mapping) or not isinstance(found.get("correct"), bool):
        return None
    predicted = _class(found, "predicted_")
    if found["correct"]:
        return Verdict("truth", "good", "right", f"The network is right: {predicted}.")
    true = _class(found, "class_")
    sentence = f"The network says {predicted}; the true class is {true}."
    return Verdict("truth", "bad", "wrong", sentence)


def _class(found: Mapping[str, Any], which: str) -> str:
    name, index = found.get(f"{which}name"), found.get(f"{which}index")
    if name is None and index is None and which == "predicted_":
        if found["correct"]:
            return _class(found, "class_")
        return "nothing" if "predicted_index" in found else "another class"
    return str(name) if name is not None else f"class {index}" if index is not None else "unknown"


def _number(values: Mapping[str, Any], key: str) -> float | None:
    value = values.get(key)
    return float(value) if isinstance(value, (int, float)) else None
