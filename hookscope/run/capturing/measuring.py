"""The job behind ``capture --stats``: numbers of layers over all pictures, and no files."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import nn

from hookscope.errors import PictureError
from hookscope.layers.addresses import Address
from hookscope.layers.probe import Probe
from hookscope.maps.statistics import RunningStatistics, Statistics
from hookscope.models.opening import OpenedModel
from hookscope.models.preprocess import Preprocessing
from hookscope.output.names import Sample
from hookscope.output.records import Record
from hookscope.run.capturing.apart import AxesKnown, by_picture
from hookscope.run.capturing.suspicions import Measured, suspicions
from hookscope.run.capturing.taps import Tap
from hookscope.run.clock import Clock
from hookscope.run.desk import Desk
from hookscope.run.forward import on_device
from hookscope.run.pipeline import Records
from hookscope.run.preparing import Prepared, prepare


@dataclass(frozen=True)
class LayerStatistics:
    """One row of the table. ``shape``: of one picture, None where pictures differ in it.

    ``norm``: over the pictures, the root of the mean squared 2-norm. ``ratio``: that norm over
    the one of the layer above, which runs next; None where there is none.
    """

    address: Address
    call: int
    shape: tuple[int, ...] | None
    dtype: str
    layout: str
    pictures: int
    numbers: Statistics
    constant_channels: int | None
    norm: float
    ratio: float | None
    remarks: tuple[str, ...]


@dataclass
class _Running:
    """What has been seen of one call of one layer."""

    address: Address
    call: int
    shape: tuple[int, ...] | None
    dtype: str
    layout: str
    pictures: int
    numbers: RunningStatistics

    def merge(self, other: _Running) -> None:
        self.pictures += other.pictures
        self.numbers.merge(other.numbers)
        if self.shape != other.shape:
            self.shape = None


Part = list[_Running]


@dataclass(frozen=True)
class Measuring:
    """Statistics of whatever the tap takes, accumulated; no two batches are in memory for it."""

    opened: OpenedModel
    preprocessing: Preprocessing
    tap: Tap
    probe: Probe
    desk: Desk
    clock: Clock
    _totals: dict[str, _Running] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def prepare(self, sample: Sample) -> Prepared | Records:
        return prepare(sample, self.preprocessing, self.clock, lambda *_: None)

    def compute(self, network: nn.Module, batch: Sequence[Prepared]) -> list[Part]:
        x = on_device([prepared.tensor for prepared in batch], self.opened.device)
        taken = self.tap.take(network, x)
        # A network of one size of batch gets the last picture again to fill it up.
        pictures = len({id(prepared) for prepared in batch})
        known, part = AxesKnown(self.probe), []
        for result in taken.results:
            address = known.address(result)
            axes = self.tap.axes(address, result.tensor, x)
            tensor, layout = by_picture(result.tensor, axes, len(x))
            numbers = RunningStatistics()
            numbers.update(tensor[:pictures], layout)
            shape, dtype = tuple(tensor.shape[1:]), str(tensor.dtype).removeprefix("torch.")
            part.append(
                _Running(address, result.call, shape, dtype, layout.kind, pictures, numbers)
            )
        # The first picture brings the numbers of the whole batch.
        return [part, *([] for _ in batch[1:])]

    def finish(self, prepared: Prepared, found: Part) -> Records:
        with self._lock:
            for one in found:
                before = self._totals.setdefault(str(one.address), one)
                if before is not one:
                    before.merge(one)
        return []

    def failed(self, sample: Sample, error: PictureError) -> Records:
        return [self.desk.failure(sample, error)]

    @property
    def fired(self) -> set[tuple[str, int]]:
        """The (layer, call) that gave something."""
        return {(one.address.layer, one.call) for one in self._totals.values()}

    def rows(self) -> list[LayerStatistics]:
        """The statistics of all pictures so far, in execution order."""
        with self._lock:
            totals = list(self._totals.values())
            measured = [
                Measured(str(one.address), one.pictures, one.numbers.result()) for one in totals
            ]
        remarks = suspicions(self.tap.what, measured)
        above = [*measured, None][1:]
        return [
            LayerStatistics(
                one.address,
                one.call,
                one.shape,
                one.dtype,
                one.layout,
                one.pictures,
                layer.numbers,
                layer.constant_channels,
                layer.norm,
                layer.norm / later.norm if later is not None and later.norm else None,
                tuple(remarks[layer.name]),
            )
            for one, layer, later in zip(totals, measured, above, strict=True)
        ]

    def record(self, row: LayerStatistics) -> Record:
        """A row as the record of a layer over the whole run."""
        numbers = row.numbers
        return self.desk.summary(
            reason="; ".join(row.remarks) or None,
            layer=str(replace(row.address, call=None)),
            call=row.call,
            what=self.tap.what,
            shape=row.shape,
            dtype=row.dtype,
            layout=row.layout,
            min=numbers.min,
            max=numbers.max,
            mean=numbers.mean,
            std=numbers.std,
            zero_fraction=numbers.zero_fraction,
            dead_channels=numbers.dead_channels,
            nonfinite=numbers.nonfinite,
            pictures=row.pictures,
            channels=numbers.channels,
            constant_channels=row.constant_channels,
            norm=row.norm,
            ratio=row.ratio,
            suspicious=list(row.remarks),
        )
