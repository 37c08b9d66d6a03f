"""Output folders with reports, made by the code that makes the real ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from PIL import Image

from hookscope.output.provenance import Fingerprint
from hookscope.output.records import error_record, gradcam_record
from hookscope.output.store import Piece, Store
from hookscope.run.reporting import write_report

RED, BLUE = (230, 20, 20), (20, 20, 230)
USUAL = {
    "model": "net",
    "weights": "DEFAULT",
    "layer": "layer4",
    "call": 1,
    "preprocess": {"resize": 256, "crop": [224, 224], "mean": [0.485, 0.456, 0.406]},
    "device": "cpu",
    "method": "gradcam",
    "class_index": 0,
    "class_name": "cat",
    "score": 3.25,
    "probability": 0.5,
    "shape": (7, 7),
}


def plain(colour: tuple[int, int, int], size: tuple[int, int] = (90, 60)) -> Image.Image:
    return Image.new("RGB", size, colour)


class Folder:
    """An output folder beside a folder of photographs."""

    def __init__(self, home: Path) -> None:
        self.photos = home / "photos"
        self.photos.mkdir()
        self.out = home / "results"
        self._store = Store(self.out)

    def photo(self, name: str, colour: tuple[int, int, int] = BLUE) -> str:
        path = self.photos / name
        plain(colour).save(path, format="PNG")
        return str(path)

    def heatmap(
        self, image: str, file: str, *, colour: tuple[int, int, int] = RED, **fields: Any
    ) -> None:
        """One gradcam record with an overlay of one colour."""

        def write(target: BinaryIO, text: Mapping[str, str]) -> None:
            plain(colour).save(target, format="PNG")

        sample = Path(image).stem
        record = gradcam_record(image=image, sample=sample, files={}, **{**USUAL, **fields})
        made = Fingerprint(image, Path(image).name, "digest", {"file": file})
        self._store.deliver(record, [Piece("overlay", file, write)], made)

    def failure(self, image: str, error: str) -> None:
        self._store.append(
            error_record("gradcam", error=error, image=image, sample="x", model="net")
        )

    def report(self) -> Path:
        self._store.close()
        return write_report(self.out)
