"""The job behind ``capture --pool``: one matrix a layer, one row a picture."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from torch import Tensor, nn

from hookscope.errors import OutputError, PictureError
from hookscope.hooks.results import Activation
from hookscope.layers.addresses import Address
from hookscope.layers.probe import Probe
from hookscope.layout import Layout
from hookscope.maps.pooling import pool
from hookscope.models.opening import OpenedModel
from hookscope.models.preprocess import Preprocessing
from hookscope.output import names
from hookscope.output.matrix import EarlierRow, Matrix, Replacing
from hookscope.output.matrix_files import MatrixFormat
from hookscope.output.matrix_index import Picture
from hookscope.output.names import Sample
from hookscope.output.records import Record
from hookscope.output.store import FolderLostError
from hookscope.run.capturing.apart import AxesKnown, by_picture
from hookscope.run.capturing.taps import ActivationTap
from hookscope.run.clock import Clock
from hookscope.run.desk import Desk
from hookscope.run.forward import on_device
from hookscope.run.pipeline import Records, Result
from hookscope.run.preparing import Prepared, prepare
from hookscope.run.shard import Shard


@dataclass(frozen=True)
class Vector:
    """What one picture made of one call of one layer: the bytes of its row, or an earlier row."""

    address: Address
    call: int
    row: bytes | EarlierRow


@dataclass(frozen=True)
class Pooled:
    """The rows of one picture, before they have their places."""

    sample: Sample
    sha256: str
    vectors: Sequence[Vector]


@dataclass(frozen=True)
class Embedding:
    """Layers pooled inside their hooks; the rows are written in the order of the pictures.

    ``how``: mean, max, cls or flatten. ``images``: all inputs of the run as typed, those of other
    shards too. Each shard has its own matrices, ``net_layer4_mean.shard2-of-8.npy``: put one behind
    the other they are the one of a single run.
    """

    opened: OpenedModel
    preprocessing: Preprocessing
    tap: ActivationTap
    probe: Probe
    how: str
    form: MatrixFormat
    desk: Desk
    clock: Clock
    images: Collection[str]
    policy: Replacing
    shard: Shard | None = None
    fired: set[tuple[str, int]] = field(default_factory=set)
    _matrices: dict[str, Matrix] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self) -> Embedding:
        """Looks at what is there already, before anything is computed. Raises ``OutputError``."""
        for address in self.tap.expected:
            self._matrix(address)
        return self

    def prepare(self, sample: Sample) -> Prepared | Pooled:
        return prepare(sample, self.preprocessing, self.clock, self._known)

    def compute(self, network: nn.Module, batch: Sequence[Prepared]) -> list[list[Vector]]:
        with self.clock.stage("forward"):
            x = on_device([prepared.tensor for prepared in batch], self.opened.device)
            taken = self.tap.take(network, x, keep=partial(self._pooled, x))
        found: list[list[Vector]] = [[] for _ in batch]
        for result in taken.results:
            address = self._axes_known.address(result)
            numbers = result.tensor.cpu().contiguous().numpy().astype("<f4", copy=False)
            for vectors, row in zip(found, numbers, strict=True):
                vectors.append(Vector(address, result.call, row.tobytes()))
            self.fired.add((result.layer, result.call))
        return found

    def finish(self, prepared: Prepared, found: list[Vector]) -> Pooled:
        return Pooled(prepared.sample, prepared.sha256, found)

    def failed(self, sample: Sample, error: PictureError) -> Records:
        return [self.desk.failure(sample, error)]

    def taken(self, results: Iterator[Result]) -> Iterator[Records]:
        """Gives the rows of each picture their places; the records of each picture."""
        for result in results:
            if isinstance(result, Pooled):
                with self.clock.stage("write"):
                    records = [self._placed(result, vector) for vector in result.vectors]
                yield records
            else:
                yield result

    def publish(self) -> list[str]:
        """The run is complete: writes the matrices; the paths of what is new."""
        with self.clock.stage("write"):
            return [
                path
                for matrix in self._matrices.values()
                if matrix.publish()
                for path in matrix.files.values()
            ]

    def close(self) -> None:
        for matrix in self._matrices.values():
            matrix.close()

    def _pooled(self, x: Tensor, live: Activation) -> Tensor:
        """Inside the hook: N x D of a batch, so that nothing larger is kept."""
        axes = self.tap.axes(self._axes_known.address(live), live.tensor, x)
        tensor, layout = by_picture(live.tensor.float(), axes, len(x))
        if axes.pictures == "folded" and tensor.dim() == 4:
            tensor, layout = tensor.flatten(1, 2), Layout("tokens")  # windows of tokens
        return pool(tensor, self.how, layout)

    def _known(self, sample: Sample, sha256: str) -> Pooled | None:
        if not self.policy.continues:
            return None
        vectors = []
        for address in self.tap.expected:
            row = self._matrix(address).find(sha256)
            if row is None:
                return None
            vectors.append(Vector(address, address.call or 1, row))
        return Pooled(sample, sha256, vectors) if vectors else None

    def _placed(self, pooled: Pooled, vector: Vector) -> Record:
        matrix = self._matrix(vector.address)
        sample, new = pooled.sample, isinstance(vector.row, bytes)
        record = self.desk.record(
            sample,
            status="ok" if new else "skipped",
            layer=str(replace(vector.address, call=None)),
            call=vector.call,
            what=self.tap.what,
            dtype="float32",
            layout="vector",
            files=matrix.files,
        )
        try:
            picture = Picture(sample.source.typed, sample.sample, pooled.sha256)
            row = matrix.add(picture, vector.row)
        except FolderLostError:
            raise
        except OutputError as error:
            return {**record, "status": "error", "files": {}, "error": str(error), "row": None}
        record = {**record, "shape": [matrix.columns], "row": row}
        if new:
            self.desk.store.append(record)
        return record

    def _matrix(self, address: Address) -> Matrix:
        with self._lock:
            if str(address) not in self._matrices:
                self._matrices[str(address)] = self._open_matrix(address)
            return self._matrices[str(address)]

    def _open_matrix(self, address: Address) -> Matrix:
        store, parts = self.desk.store, [self.how, *self.tap.suffixes]
        if self.shard is not None:
            parts[-1] += f".shard{self.shard.number}-of-{self.shard.total}"
        name = names.file_name(self.opened.file_name, str(address), *parts, extension=self.form)
        settings = {**self.tap.settings, "layer": str(address), "pool": self.how}
        matrix = Matrix(
            store.out, name, self.desk.settings_key(settings), self.policy, store.dry_run
        )
        matrix.open(self.images)
        return matrix

    @cached_property
    def _axes_known(self) -> AxesKnown:
        return AxesKnown(self.probe)
