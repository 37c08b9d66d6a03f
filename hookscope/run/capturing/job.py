"""The job behind ``hookscope capture``: what flows at the chosen layers, drawn and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from torch import nn

from hookscope.errors import PictureError
from hookscope.layers.addresses import Address
from hookscope.layers.probe import Probe
from hookscope.models.opening import OpenedModel
from hookscope.models.preprocess import Preprocessing
from hookscope.output.names import Sample, beside
from hookscope.output.records import Record
from hookscope.run.capturing.apart import AxesKnown, FeatureMaps, taken_apart
from hookscope.run.capturing.pictures import Draw, GridLook, TapPictures
from hookscope.run.capturing.taps import Tap
from hookscope.run.capturing.tensorboard import EventLog
from hookscope.run.clock import Clock
from hookscope.run.desk import Desk
from hookscope.run.forward import on_device
from hookscope.run.pieces import picture_piece, tensor_piece
from hookscope.run.pipeline import Records
from hookscope.run.preparing import Prepared, prepare


@dataclass(frozen=True)
class Capturing:
    """One pass a batch brings back what the tap takes at all chosen layers.

    ``save``: a format for the raw tensors too. ``fired``: the (layer, call) that gave something.
    """

    opened: OpenedModel
    preprocessing: Preprocessing
    tap: Tap
    probe: Probe
    look: GridLook
    save: str | None
    desk: Desk
    clock: Clock
    log: EventLog | None = None
    fired: set[tuple[str, int]] = field(default_factory=set)

    def prepare(self, sample: Sample) -> Prepared | Records:
        return prepare(sample, self.preprocessing, self.clock, self._known_records)

    def compute(self, network: nn.Module, batch: Sequence[Prepared]) -> list[list[FeatureMaps]]:
        x = on_device([prepared.tensor for prepared in batch], self.opened.device)
        taken = self.tap.take(network, x)
        found: list[list[FeatureMaps]] = [[] for _ in batch]
        for result in taken.results:
            address = self._axes_known.address(result)
            axes = self.tap.axes(address, result.tensor, x)
            parts = taken_apart(result, address, axes, x, taken.about)
            for maps, one in zip(found, parts, strict=True):
                maps.append(one)
            self.fired.add((result.layer, result.call))
        return found

    def finish(self, prepared: Prepared, found: list[FeatureMaps]) -> Records:
        return [self._delivered(prepared, maps) for maps in found]

    def failed(self, sample: Sample, error: PictureError) -> Records:
        return [self.desk.failure(sample, error)]

    def _known_records(self, sample: Sample, sha256: str) -> Records | None:
        """The skipped records of a picture all of whose files may be skipped."""
        records = []
        for address in self.tap.expected:
            kinds = self._pictures.kinds_expected(address)
            files = self._files(address, sample, kinds)
            record = self.desk.finished(sample, sha256, files, self._fingerprinted(address))
            if record is None:
                return None
            records.append(record)
        return records or None

    def _files(self, address: Address, sample: Sample, kinds: Sequence[str]) -> dict[str, str]:
        """Kind -> name below ``--out``; ``kinds`` of pictures, the first of which is the grid."""
        files = {}
        for kind in kinds:
            suffixes = (*self.tap.suffixes, kind) if kind != "grid" else self.tap.suffixes
            files[kind] = self.desk.file_name(str(address), sample, *suffixes, extension="png")
        if self.save:
            files["tensor"] = beside(files["grid"], self.save)
        return files

    def _fingerprinted(self, address: Address) -> dict[str, object]:
        """The settings that change a grid; whether its tensor is saved too does not."""
        return {**asdict(self.look), **self.tap.settings, "layer": str(address)}

    @cached_property
    def _axes_known(self) -> AxesKnown:
        return AxesKnown(self.probe)

    @cached_property
    def _pictures(self) -> TapPictures:
        rolled_out = "rollout" in self.tap.suffixes
        return TapPictures(self.opened, self.probe, self.tap.what, self.look, rolled_out)

    def _delivered(self, prepared: Prepared, maps: FeatureMaps) -> Record:
        # Drawn only where a file needs it, and then once.
        draws: dict[str, Draw] = {
            kind: cache(draw) for kind, draw in self._pictures.draws(prepared, maps).items()
        }
        files = self._files(maps.address, prepared.sample, list(draws))
        pieces = [picture_piece(kind, files[kind], draws[kind], self.clock) for kind in draws]
        if "tensor" in files:
            pieces.append(tensor_piece(files["tensor"], maps.tensor))
        record = self.desk.deliver(
            prepared,
            pieces,
            settings=self._fingerprinted(maps.address),
            layer=str(replace(maps.address, call=None)),
            call=maps.call,
            what=self.tap.what,
            **numbers_of(maps),
            **{"reason": _remark(self.tap.what, maps), **maps.about},
        )
        if self.log is not None and record["status"] != "error":
            with self.clock.stage("tensorboard"):
                self.log.add(self._tag(prepared.sample, maps), draws["grid"](), maps.tensor)
        return record

    def _tag(self, sample: Sample, maps: FeatureMaps) -> str:
        """TensorBoard shows what is the same up to the first slash together."""
        group = " ".join((str(maps.address), *self.tap.suffixes))
        return "/".join(part for part in (group, sample.folder, sample.sample) if part)


def numbers_of(maps: FeatureMaps) -> dict[str, Any]:
    """The fields of a record that describe a tensor."""
    numbers = maps.statistics
    return {
        "shape": tuple(maps.tensor.shape),
        "dtype": str(maps.tensor.dtype).removeprefix("torch."),
        "layout": maps.layout.kind,
        "min": numbers.min,
        "max": numbers.max,
        "mean": numbers.mean,
        "std": numbers.std,
        "zero_fraction": numbers.zero_fraction,
        "dead_channels": numbers.dead_channels,
        "nonfinite": numbers.nonfinite,
    }


def _remark(what: str, maps: FeatureMaps) -> str | None:
    if what == "gradient" and maps.statistics.min == maps.statistics.max == 0:
        return "the gradient is zero: what was differentiated does not depend on this layer"
    return None
