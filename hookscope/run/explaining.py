"""The job behind ``hookscope gradcam``: heatmaps, laid over the pictures they explain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from torch import nn

from hookscope.errors import PictureError
from hookscope.gradcam import Heatmap, explain
from hookscope.layers.addresses import Address
from hookscope.layers.probe import Probe
from hookscope.models.opening import OpenedModel
from hookscope.models.preprocess import Preprocessing
from hookscope.output.names import Sample, beside
from hookscope.output.records import Record
from hookscope.run.clock import Clock
from hookscope.run.desk import Desk
from hookscope.run.forward import failures_in_words, on_device
from hookscope.run.heat_pictures import HeatPictures, Look, unreadable
from hookscope.run.pipeline import Engine, Job, Records
from hookscope.run.preparing import Prepared, prepare


@dataclass(frozen=True)
class Asked:
    """What is asked of the network."""

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
class Explaining:
    """All layers, classes and methods of a batch from as few passes as they allow."""

    opened: OpenedModel
    preprocessing: Preprocessing
    addresses: Sequence[Address]
    probe: Probe
    asked: Asked
    look: Look
    save: str | None
    desk: Desk
    clock: Clock
    progress: Callable[[int, int], None] | None = None

    def prepare(self, sample: Sample) -> Prepared | Records:
        if not self.addresses:
            return []  # all that was asked for never runs; that is said once, at the end
        return prepare(sample, self.preprocessing, self.clock, self._known_records)

    def compute(self, network: nn.Module, batch: Sequence[Prepared]) -> list[list[Heatmap]]:
        x = on_device([prepared.tensor for prepared in batch], self.opened.device)
        with failures_in_words(x):
            return explain(
                network,
                x,
                layers=self.addresses,
                layouts={str(info.address): info.layout for info in self.probe.tensors},
                background=self._background,
                progress=self.progress,
                **asdict(self.asked),
            )

    @property
    def _background(self) -> int | None:
        """The class that segmentation names when there is nothing: no answer by itself."""
        first = self.opened.labels.name(0) or ""
        return 0 if first.strip("_").casefold() == "background" else None

    def finish(self, prepared: Prepared, found: list[Heatmap]) -> Records:
        groups: dict[tuple[Address, str], list[Heatmap]] = {}
        for heatmap in found:
            groups.setdefault((heatmap.address, heatmap.method), []).append(heatmap)
        records: Records = []
        skipped_sheets: set[tuple[Address, str]] = set()
        for heatmap in found:
            group = heatmap.address, heatmap.method
            record = self._delivered(prepared, groups[group], heatmap)
            if heatmap is groups[group][0] and record["status"] == "skipped":
                skipped_sheets.add(group)
            elif group in skipped_sheets and not self._has_files_of_its_own:
                record = {**record, "status": "skipped"}
            records.append(record)
        return records

    @property
    def _has_files_of_its_own(self) -> bool:
        """Whether each class has a file, and not only its place on the sheet."""
        return self.save is not None or bool({"overlay", "heatmap"} & set(self.look.views))

    def failed(self, sample: Sample, error: PictureError) -> Records:
        return [self.desk.failure(sample, error)]

    def on_one_scale(
        self, engine_of: Callable[[Job], Engine], samples: Iterable[Sample]
    ) -> Explaining:
        """The same job with the colours of all its maps on one scale, found by a pass before."""
        extremes = Extremes(self)
        for _ in engine_of(extremes).run(samples):
            pass
        return replace(self, look=replace(self.look, limits=extremes.limits))

    def _delivered(self, prepared: Prepared, heatmaps: list[Heatmap], heatmap: Heatmap) -> Record:
        """``heatmaps``: those of all classes at the same layer by the same method."""
        rank = 1 + next(place for place, one in enumerate(heatmaps) if one is heatmap)
        layer, index, sample = str(heatmap.address), heatmap.class_index, prepared.sample
        title = " \u00b7 ".join(
            (sample.source.path.name, self.opened.file_name, layer, heatmap.method)
        )
        pictures = HeatPictures(
            prepared, heatmaps, self.opened.labels, self.look, self.clock, title
        )
        together = self._files_together(layer, sample, heatmap.method)
        files = self._files(layer, sample, heatmap.method, index)
        reason = unreadable(heatmap)
        return self.desk.deliver(
            prepared,
            # The sheet shows all classes, and comes with the first of them.
            pictures.pieces(heatmap, {**files, **together} if rank == 1 else files),
            also={} if rank == 1 else together,
            settings=self._fingerprinted(layer, heatmap.method, index, rank),
            status="degenerate" if reason else "ok",
            reason=reason or heatmap.note,
            layer=heatmap.layer,
            call=heatmap.call or 1,
            method=heatmap.method,
            class_index=index,
            class_name=None if index is None else self.opened.labels.name(index),
            score=heatmap.score,
            probability=heatmap.probability,
            shape=tuple(heatmap.map.shape),
            min=float(heatmap.map.min()),
            max=float(heatmap.map.max()),
        )

    def _files(self, layer: str, sample: Sample, method: str, index: int | None) -> dict[str, str]:
        """Kind -> name below ``--out``, of one class."""
        class_name = None if index is None else self.opened.labels.name(index)
        target = "none" if index is None else f"{index}-{class_name}" if class_name else str(index)
        named = partial(self.desk.file_name, layer, sample, method, target)
        overlay = named(extension=self.look.format)
        names = {"overlay": overlay, "heatmap": named("heatmap", extension="png")}
        files = {view: names[view] for view in self.look.views if view in names}
        if self.save:
            files["tensor"] = beside(overlay, self.save)
        return files

    def _files_together(self, layer: str, sample: Sample, method: str) -> dict[str, str]:
        """Kind -> name, of all classes in one picture."""
        named = partial(self.desk.file_name, layer, sample, method, "sheet")
        files = {"sheet": named(extension="png")} if "sheet" in self.look.views else {}
        if self.look.figure:
            files["figure"] = named(extension=self.look.figure)
        return files

    def _fingerprinted(
        self, layer: str, method: str, index: int | None, rank: int
    ) -> dict[str, object]:
        """The settings of one map: the run's other classes and methods do not matter to it.

        A class that was not named is known by its rank, so that a later run can tell which of
        the files on the disk is that of the predicted class.
        """
        settings = {**asdict(self.asked), **asdict(self.look)}
        for name in ("methods", "views", "figure"):
            del settings[name]
        if not self.look.drawn_together() or rank > 1:
            del settings["classes"], settings["top_k"]
        return {
            **settings,
            "layer": layer,
            "method": method,
            "class_index": index,
            "rank": rank if self.asked.classes is None else None,
        }

    def _known_records(self, sample: Sample, sha256: str) -> Records | None:
        """The skipped records of a picture all of whose maps may be skipped."""
        if self.asked.fuse or self.probe.problem:
            return None
        classes = self.asked.classes or (None,) * (self.asked.top_k or 1)
        records: Records = []
        for address in self.addresses:
            for rank, index in enumerate(classes, start=1):
                for method in self.asked.methods:
                    which = (str(address), method, index, rank)
                    record = self._known_map(sample, sha256, *which)
                    if record is None:
                        return None
                    records.append(record)
        return records

    def _known_map(
        self, sample: Sample, sha256: str, layer: str, method: str, index: int | None, rank: int
    ) -> Record | None:
        if index is None:
            settings = self._fingerprinted(layer, method, None, rank)
            for earlier in self.desk.known(sample, sha256, settings, {"class_index"}):
                index = earlier.settings["class_index"]
        if index is None:
            return None
        together = self._files_together(layer, sample, method)
        files = self._files(layer, sample, method, index)
        return self.desk.finished(
            sample,
            sha256,
            {**files, **together} if rank == 1 else files,
            self._fingerprinted(layer, method, index, rank),
            also={} if rank == 1 else together,
        )


@dataclass
class Extremes:
    """A job that writes nothing: the lowest and the highest value of all maps of a run."""

    explaining: Explaining
    low: float = math.inf
    high: float = -math.inf

    @property
    def clock(self) -> Clock:
        return self.explaining.clock

    @property
    def limits(self) -> tuple[float, float] | None:
        return (self.low, self.high) if self.low < self.high else None

    def prepare(self, sample: Sample) -> Prepared | Records:
        return prepare(sample, self.explaining.preprocessing, self.clock, lambda *_: None)

    def compute(self, network: nn.Module, batch: Sequence[Prepared]) -> list[list[Heatmap]]:
        return self.explaining.compute(network, batch)

    def finish(self, prepared: Prepared, found: list[Heatmap]) -> Records:
        for heatmap in found:
            if unreadable(heatmap) is None:
                self.low = min(self.low, float(heatmap.map.min()))
                self.high = max(self.high, float(heatmap.map.max()))
        return []

    def failed(self, sample: Sample, error: PictureError) -> Records:
        return []
