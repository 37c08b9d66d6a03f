"""The job behind ``hookscope gradcam``: heatmaps, laid over the pictures they explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from hookscope.errors import PictureError
from hookscope.layers.addresses import Address
from hookscope.models.opening import OpenedModel
from hookscope.models.preprocess import Preprocessing
from hookscope.output.names import Sample
from hookscope.output.records import Record
from hookscope.run.clock import Clock
from hookscope.run.desk import Desk
from hookscope.run.explaining.asking import Asking, Finding
from hookscope.run.explaining.files import HeatFiles
from hookscope.run.explaining.pictures import HeatPictures, Look
from hookscope.run.explaining.sheets import Words, unreadable
from hookscope.run.explaining.truth import truth_field
from hookscope.run.explaining.versus import prediction
from hookscope.run.pipeline import Records
from hookscope.run.preparing import Prepared, prepare

_Group = tuple[Address, str | None]  # a layer and, unless a sheet shows several, a method


@dataclass(frozen=True)
class Explaining:
    """What ``asking`` finds becomes records and files.

    ``foreseeable``: the maps of a picture can be named before the network has run.
    """

    opened: OpenedModel
    preprocessing: Preprocessing
    asking: Asking
    look: Look
    files: HeatFiles
    desk: Desk
    clock: Clock
    foreseeable: bool = True

    def prepare(self, sample: Sample) -> Prepared | Records:
        if not self.asking.addresses:
            return []  # all that was asked for never runs; that is said once, at the end
        return prepare(sample, self.preprocessing, self.clock, self._known_records)

    def compute(self, network: nn.Module, batch: Sequence[Prepared]) -> list[list[Finding]]:
        return self.asking.findings(network, batch)

    def failed(self, sample: Sample, error: PictureError) -> Records:
        return [self.desk.failure(sample, error)]

    def finish(self, prepared: Prepared, found: list[Finding]) -> Records:
        groups: dict[_Group, list[Finding]] = {}
        for finding in found:
            groups.setdefault(self._group(finding), []).append(finding)
        records: Records = []
        skipped_sheets: set[_Group] = set()
        for finding in found:
            group = self._group(finding)
            record = self._delivered(prepared, groups[group], finding)
            if finding is groups[group][0] and record["status"] == "skipped":
                skipped_sheets.add(group)
            elif group in skipped_sheets and not self.files.one_each:
                record = {**record, "status": "skipped"}
            records.append(record)
        return records

    def _group(self, finding: Finding) -> _Group:
        heatmap = finding.heatmap
        return heatmap.address, None if self.files.compares else heatmap.method

    def _delivered(self, prepared: Prepared, group: list[Finding], finding: Finding) -> Record:
        """``group``: all that comes on the same sheet."""
        heatmap, sample = finding.heatmap, prepared.sample
        layer, index, method = str(heatmap.address), heatmap.class_index, heatmap.method
        same = [one for one in group if one.heatmap.method == method]
        rank = 1 + next(place for place, one in enumerate(same) if one is finding)
        first = finding is group[0]
        together = self.files.together(layer, sample, method)
        files = self.files.own(layer, sample, method, index, rivalled=finding.rival is not None)
        reason = unreadable(heatmap)
        return self.desk.deliver(
            prepared,
            # The sheet shows all of its maps, and comes with the first of them.
            self._pictures(prepared, group).pieces(
                finding, {**files, **together} if first else files
            ),
            also={} if first else together,
            settings=self._fingerprinted(sample, layer, method, index, rank, first),
            status="degenerate" if reason else "ok",
            reason=reason or heatmap.note or self._unrivalled(finding),
            layer=heatmap.layer,
            call=heatmap.call or 1,
            method=method,
            class_index=index,
            class_name=None if index is None else self.opened.labels.name(index),
            score=heatmap.score,
            probability=heatmap.probability,
            shape=tuple(heatmap.map.shape),
            min=float(heatmap.map.min()),
            max=float(heatmap.map.max()),
            **self._more(finding),
        )

    def _more(self, finding: Finding) -> dict[str, Any]:
        """The fields of a record that only some runs have."""
        heatmap, labels, more = finding.heatmap, self.opened.labels, dict[str, Any]()
        if finding.evaluation is not None:
            more["evaluation"] = asdict(finding.evaluation)
        if finding.truth is not None:
            predicted = heatmap.predicted and heatmap.predicted[0]
            more["truth"] = truth_field(finding.truth, predicted, labels)
        if self.asking.rival is not None:
            theirs = finding.rival
            more |= prediction(heatmap, labels)
            more["versus"] = theirs and self.asking.rival.field(heatmap, theirs, labels)
        return more

    def _unrivalled(self, finding: Finding) -> str | None:
        rival = self.asking.rival
        if rival is None or finding.rival is not None:
            return None
        return f"with the weights of {rival.name} the layer does not run"

    def _pictures(self, prepared: Prepared, group: list[Finding]) -> HeatPictures:
        rival = self.asking.rival
        first = group[0].heatmap
        title = (prepared.sample.source.path.name, self.opened.file_name, str(first.address))
        return HeatPictures(
            prepared,
            group,
            Words(self.opened.labels, " \u00b7 ".join(title)),
            self.look,
            self.clock,
            (rival.first, rival.name) if rival else None,
        )

    def _fingerprinted(
        self, sample: Sample, layer: str, method: str, index: int | None, rank: int, first: bool
    ) -> dict[str, object]:
        """The settings of one map: the run's other classes and methods do not matter to it, unless
        they stand on the sheet that comes with it.

        A class that was not named is known by its rank, so that a later run can tell which of
        the files on the disk is that of the predicted class.
        """
        asked = self.asking.asked
        settings = {**asdict(asked), **asdict(self.look), **self.asking.settings(sample)}
        for name in ("views", "figure"):
            del settings[name]
        brings_sheet = first and self.look.drawn_together()
        if not brings_sheet:
            del settings["classes"], settings["top_k"]
        if not brings_sheet or not self.files.compares:
            del settings["methods"]
        return {
            **settings,
            "layer": layer,
            "method": method,
            "class_index": index,
            "rank": rank if asked.classes is None else None,
        }

    def _known_records(self, sample: Sample, sha256: str) -> Records | None:
        """The skipped records of a picture all of whose maps may be skipped."""
        if not self.foreseeable:
            return None
        asked, true = self.asking.asked, self.asking.truth(sample)
        classes = asked.classes or (None,) * (asked.top_k or 1)
        records: Records = []
        for address in self.asking.addresses:
            questions: list[int | None] = list(classes)
            for rank, index in enumerate(questions, start=1):
                for method in asked.methods:
                    which = (str(address), method, index, rank)
                    record = self._known_map(sample, sha256, *which)
                    if record is None:
                        return None
                    records.append(record)
                known = {record["class_index"] for record in records}
                if rank == len(classes) and not asked.classes and true not in (None, *known):
                    questions.append(true)  # it was asked about where the network was wrong
        return records

    def _known_map(
        self, sample: Sample, sha256: str, layer: str, method: str, index: int | None, rank: int
    ) -> Record | None:
        methods = self.asking.asked.methods
        first = rank == 1 and (method == methods[0] or not self.files.compares)
        if index is None:
            settings = self._fingerprinted(sample, layer, method, None, rank, first)
            for earlier in self.desk.known(sample, sha256, settings, {"class_index"}):
                index = earlier.settings["class_index"]
        if index is None:
            return None
        together = self.files.together(layer, sample, method)
        files = self.files.own(layer, sample, method, index)
        return self.desk.finished(
            sample,
            sha256,
            {**files, **together} if first else files,
            self._fingerprinted(sample, layer, method, index, rank, first),
            also={} if first else together,
        )
