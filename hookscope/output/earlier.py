"""What earlier runs left in the output folder, and whether it can stand for a new result."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hookscope.output.manifest import PROVENANCE, ManifestReader, own_files
from hookscope.output.names import Sample
from hookscope.output.provenance import Fingerprint, Origin, read_png
from hookscope.output.records import Record


@dataclass(frozen=True)
class Earlier:
    """A record whose files are all there, and the settings they were made with."""

    record: Record
    settings: Mapping[str, Any]


class EarlierRuns:
    """Looks into the PNGs themselves, and for everything else into the manifests."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._manifests = ManifestReader(out)

    def origin(self, name: str, size: int) -> Origin | None:
        """What the file was made from; None when it is not ours, or not what we left there."""
        if not name.endswith(".png"):
            return self._manifests.origin(name, size)
        try:
            return read_png(self._out / name)
        except OSError:
            return None

    def finished(self, files: Mapping[str, str], key: str) -> Record | None:
        """The record of files (kind -> name) that are all whole and made from exactly that."""
        origins = [self._made_from(name, key) for name in files.values()]
        if not origins or origins[0] is None or None in origins:
            return None
        return self._skipped(origins[0].record, files)

    def known(
        self, fingerprint: Fingerprint, sample: Sample, apart_from: Collection[str]
    ) -> list[Earlier]:
        """Records of the sample made with those settings, but for the ones named."""

        def compared(settings: Mapping[str, Any]) -> str:
            kept = {name: value for name, value in settings.items() if name not in apart_from}
            return Fingerprint("", "", "", kept).key

        wanted, found = compared(fingerprint.settings), []
        for line in self._manifests.lines(fingerprint.picture_sha):
            files = {kind: line["files"][kind] for kind in own_files(line)}
            made = line.pop(PROVENANCE)
            if (
                _belongs_to(sample, line)
                and made["weights"] == fingerprint.weights_digest
                and compared(made["settings"]) == wanted
                and all(self._made_from(name, made["key"]) for name in files.values())
            ):
                found.append(Earlier(self._skipped(line, files), made["settings"]))
        return found

    def _made_from(self, name: str, key: str) -> Origin | None:
        try:
            size = os.lstat(self._out / name).st_size
        except OSError:
            return None
        origin = self.origin(name, size)
        return origin if origin and origin.whole and origin.key == key else None

    def _skipped(self, record: Record, files: Mapping[str, str]) -> Record:
        paths = {kind: str(self._out / name) for kind, name in files.items()}
        return {**record, "status": "skipped", "files": paths}


def _belongs_to(sample: Sample, line: Record) -> bool:
    """The same picture may lie in the inputs twice, under two names."""
    folders = {name.rpartition("/")[0] for name in line["files"].values()}
    return line.get("sample") == sample.sample and folders == {sample.folder}
