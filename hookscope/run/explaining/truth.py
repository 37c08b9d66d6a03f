"""``gradcam --truth``: the true class of each picture, and how often the network is right."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hookscope.errors import UsageError
from hookscope.models.labels import Labels
from hookscope.output.names import Sample
from hookscope.output.records import Record
from hookscope.run.explaining.truth_names import Names
from hookscope.run.explaining.truth_table import read_table

FOLDERS = "folders"


@dataclass(frozen=True)
class Truths:
    """The true class of each picture, as far as it is told.

    ``classes``: by the picture's path as typed. ``labels``: the model's class names, or those
    that the folders gave where it had none. ``note``: one sentence for stderr.
    """

    classes: Mapping[str, int]
    labels: Labels
    note: str | None = None

    def of(self, sample: Sample) -> int | None:
        """The index of the picture's true class."""
        return self.classes.get(sample.source.typed)


def read_truths(told: str, samples: Sequence[Sample], labels: Labels, count: int | None) -> Truths:
    """What ``told``, ``folders`` or the name of a CSV file, says of the pictures of a whole run.

    ``labels`` and ``count``: names and number of the model's classes, if known. Raises
    ``UsageError``, and ``TargetError`` for a class that the model does not have.
    """
    pictures = [sample.source.typed for sample in samples if sample.source.problem is None]
    if told == FOLDERS:
        return _by_folders(pictures, labels, count)
    return _by_table(told, pictures, labels, count)


def truth_field(true: int, predicted: int | None, labels: Labels) -> dict[str, object]:
    """The ``truth`` of a record; a network that predicts nothing is not right."""
    return {
        "correct": predicted == true,
        "class_index": true,
        "class_name": labels.name(true),
        "predicted_index": predicted,
        "predicted_name": None if predicted is None else labels.name(predicted),
    }


@dataclass
class Accuracy:
    """How many pictures the network was right about; each counts once, whatever its records."""

    _right: dict[str, bool] = field(default_factory=dict, init=False)
    _untold: set[str] = field(default_factory=set, init=False)

    def add(self, record: Record) -> None:
        """Counts a record's picture; one that failed has no answer to be judged."""
        image = record["image"]
        if record["status"] == "error" or image is None:
            return
        truth = record.get("truth")
        if truth is None:
            self._untold.add(image)
        else:
            self._right[image] = truth["correct"]

    def sentence(self) -> str | None:
        """What to say at the end; None where no true class is known."""
        right, judged = sum(self._right.values()), len(self._right)
        if not judged:
            return None
        pictures = "picture" if judged == 1 else "pictures"
        said = f"accuracy {right / judged:.3f}: {right} of {judged} {pictures} right"
        untold = len(self._untold - self._right.keys())
        return f"{said}; {untold} without a true class" if untold else said


def _by_folders(pictures: Sequence[str], labels: Labels, count: int | None) -> Truths:
    names: dict[str, str] = {}
    for folder in map(os.path.dirname, pictures):
        if folder not in names:
            names[folder] = _folder_name(folder)
    told = Counter(names[os.path.dirname(picture)] for picture in pictures)
    meaning = Names(told, told.keys(), True, f"--truth {FOLDERS}").meaning(labels, count)
    classes = {picture: meaning.indices[names[os.path.dirname(picture)]] for picture in pictures}
    return Truths(classes, meaning.labels, meaning.note)


def _folder_name(folder: str) -> str:
    """A link is called by its own name; only what has no name is looked up."""
    name = os.path.basename(folder)
    if name in ("", os.curdir, os.pardir):
        name = os.path.basename(os.path.realpath(folder or os.curdir))
    return name or os.sep


def _by_table(path: str, pictures: Sequence[str], labels: Labels, count: int | None) -> Truths:
    table = read_table(path, pictures)
    told = Counter(
        text for rows in table.rows.values() for text in dict.fromkeys(row.told for row in rows)
    )
    meaning = Names(told, table.classes, False, f"--truth {path}").meaning(labels, count)
    classes: dict[str, int] = {}
    for picture, rows in table.rows.items():
        classes[picture] = meaning.indices[rows[0].told]
        for row in rows:
            if meaning.indices[row.told] != classes[picture]:
                raise UsageError(
                    f"--truth {path} tells two classes of {picture}: "
                    f"line {rows[0].line} says {rows[0].told}, line {row.line} {row.told}"
                )
    notes = [meaning.note] if meaning.note else []
    if table.by_name:
        notes.append(f"found by file name alone: {table.by_name} of {len(pictures)} pictures")
    untold = len(pictures) - len(classes)
    if untold:
        notes.append(f"{untold} of {len(pictures)} pictures have no true class in {path}")
    return Truths(classes, meaning.labels, "; ".join(notes) or None)
