"""Where findings become records and files: what every record of a run has in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hookscope.errors import OutputError, PictureError
from hookscope.layers.addresses import Selection, item_text
from hookscope.models.opening import OpenedModel
from hookscope.models.preprocess import Preprocessing
from hookscope.output import names
from hookscope.output.earlier import Earlier
from hookscope.output.names import Sample
from hookscope.output.provenance import Fingerprint
from hookscope.output.records import Record, capture_record, error_record, gradcam_record
from hookscope.output.store import FolderLostError, Piece, Store
from hookscope.run.preparing import Prepared

_RECORDS = {"capture": capture_record, "gradcam": gradcam_record}


@dataclass(frozen=True)
class Desk:
    """One run's store, with the model and the preprocessing that all its records name."""

    store: Store
    opened: OpenedModel
    preprocessing: Preprocessing
    command: Literal["capture", "gradcam"]

    def file_name(self, layer: str, sample: Sample, *suffixes: str, extension: str) -> str:
        """A file's name below ``--out``."""
        return names.file_name(self.opened.file_name, layer, sample, *suffixes, extension=extension)

    def deliver(
        self,
        prepared: Prepared,
        pieces: Sequence[Piece],
        *,
        settings: Mapping[str, Any],
        also: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Record:
        """The record of one finding, its files written; an error record where they must not be.

        ``settings``: what of the flags changes these files. ``also``: files (kind -> name) that
        the record names and another one brings. ``fields``: the record's own.
        """
        record = self.record(prepared.sample, files={}, **fields)
        try:
            fingerprint = self._fingerprint(prepared.sample, prepared.sha256, settings)
            return self.store.deliver(record, pieces, fingerprint, also or {})
        except FolderLostError:
            raise
        except OutputError as error:
            return {**record, "status": "error", "files": {}, "error": str(error)}

    def record(self, sample: Sample, *, files: Mapping[str, str], **fields: Any) -> Record:
        """The record of one finding, whose files (kind -> path) are somebody else's concern."""
        return _RECORDS[self.command](**self._common(sample), files=files, **fields)

    def settings_key(self, settings: Mapping[str, Any]) -> str:
        """Equal for the same weights and settings, whatever the picture."""
        return self._of_picture("", "", settings).key

    def finished(
        self,
        sample: Sample,
        sha256: str,
        files: Mapping[str, str],
        settings: Mapping[str, Any],
        also: Mapping[str, str] | None = None,
    ) -> Record | None:
        """The skipped record of these files (kind -> name), if --skip-existing may skip them."""
        found = self.store.finished(files, self._fingerprint(sample, sha256, settings))
        if found is None:
            return None
        others = {kind: self.store.path(name) for kind, name in (also or {}).items()}
        return {**found, "image": sample.source.typed, "files": {**found["files"], **others}}

    def known(
        self,
        sample: Sample,
        sha256: str,
        settings: Mapping[str, Any],
        apart_from: Collection[str],
    ) -> list[Earlier]:
        """What --skip-existing may skip of this picture, the settings ``apart_from`` aside."""
        fingerprint = self._fingerprint(sample, sha256, settings)
        return [
            replace(earlier, record={**earlier.record, "image": sample.source.typed})
            for earlier in self.store.known(fingerprint, sample, apart_from)
        ]

    def failure(self, sample: Sample, error: PictureError) -> Record:
        """The record of a picture that could not be read or run."""
        return error_record(self.command, error=str(error), **self._common(sample))

    def layer_failure(self, selection: Selection, sentence: str) -> Record:
        """The record of a layer that was named and gave nothing; see ``unanswered``."""
        return error_record(
            self.command,
            error=f"layer {selection.pattern} {sentence}",
            reason=sentence,
            **self._of_model(),
            layer=f"{selection.layer}{item_text(selection.item)}",
            call=selection.call,
        )

    def summary(self, **fields: Any) -> Record:
        """The record of a layer over all pictures of the run; it has no files."""
        return _RECORDS[self.command](
            **{**self._of_model(), "image": None, "sample": None}, files={}, **fields
        )

    def _common(self, sample: Sample) -> dict[str, Any]:
        return {"image": sample.source.typed, "sample": sample.sample, **self._of_model()}

    def _of_model(self) -> dict[str, Any]:
        account = self.opened.account
        return {
            "model": self.opened.file_name,
            "weights": self.opened.weights,
            "preprocess": self.preprocessing.record(),
            "device": str(self.opened.device),
            **({"checkpoint": account.record()} if account else {}),
        }

    def _fingerprint(self, sample: Sample, sha256: str, settings: Mapping[str, Any]) -> Fingerprint:
        return self._of_picture(sha256, sample.source.path.name, settings)

    def _of_picture(self, sha256: str, name: str, settings: Mapping[str, Any]) -> Fingerprint:
        return Fingerprint(
            picture_sha=sha256,
            picture_name=name,
            weights_digest=self.opened.digest,
            settings={
                "command": self.command,
                "model": self.opened.file_name,
                "preprocess": self.preprocessing.record(),
                **settings,
            },
        )
