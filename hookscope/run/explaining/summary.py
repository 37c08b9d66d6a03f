"""What is to be said of all heatmaps of a run, at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from statistics import fmean

from hookscope.output.records import Record
from hookscope.render.verdicts import trust
from hookscope.run.explaining.truth import Accuracy

_SAID = {
    "average_drop": "average drop {:.2f}",
    "increase": "increase in confidence {:.0%}",
    "deletion_auc": "deletion {:.2f}",
    "insertion_auc": "insertion {:.2f}",
    "randomised_head": "random head {:.2f}",
    "randomised_all": "random weights {:.2f}",
}


class Summary:
    """Takes the records as they come; its sentences follow from what they held."""

    def __init__(self) -> None:
        self._accuracy = Accuracy()
        self._alike: list[float] = []
        self._numbers: dict[str, dict[str, list[float]]] = {}  # method -> name -> values
        self._verdicts: dict[str, Counter[str]] = {}

    def add(self, record: Record) -> None:
        """Only what a record holds is counted."""
        self._accuracy.add(record)
        alike = (record.get("versus") or {}).get("rank_correlation")
        if alike is not None:
            self._alike.append(alike)
        evaluation = record.get("evaluation") or {}
        numbers = {key: value for key, value in evaluation.items() if value is not None}
        if not numbers:
            return
        of_method = self._numbers.setdefault(record["method"], {})
        for key, value in numbers.items():
            of_method.setdefault(key, []).append(float(value))
        verdict = trust(evaluation)
        if verdict:
            self._verdicts.setdefault(record["method"], Counter())[verdict.label] += 1

    def sentences(self) -> Iterator[str]:
        """One for each method that was evaluated, one for two checkpoints, one for the truth."""
        for method, numbers in self._numbers.items():
            maps = len(next(iter(numbers.values())))
            said = [
                words.format(fmean(numbers[key])) for key, words in _SAID.items() if key in numbers
            ]
            yield f"{method}, mean over {_maps(maps)}: {', '.join(said)}"
            verdicts = self._verdicts.get(method, Counter())
            if verdicts:
                yield f"{method}: " + ", ".join(
                    f"{count} {label}" for label, count in verdicts.most_common()
                )
        if self._alike:
            yield (
                f"rank correlation between the checkpoints: {fmean(self._alike):.2f}, mean over "
                f"{_maps(len(self._alike))}"
            )
        accuracy = self._accuracy.sentence()
        if accuracy:
            yield accuracy


def _maps(count: int) -> str:
    return f"{count} map{'' if count == 1 else 's'}"
