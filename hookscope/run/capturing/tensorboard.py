"""Pictures and histograms for TensorBoard, one event file a run."""

from __future__ import annotations

import threading
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image
from torch import Tensor

from hookscope.errors import OutputError, UsageError
from hookscope.render.arrays import as_array
from hookscope.render.encode import save_png

if TYPE_CHECKING:
    from torch.utils.tensorboard import FileWriter

_BINS = 64


class EventLog:
    """Writes into a folder that ``tensorboard --logdir`` shows; threads may share it.

    Raises ``UsageError`` where TensorBoard is not installed, and ``OutputError`` where the folder
    cannot be written to.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._writer = _writer(folder)

    def add(self, tag: str, picture: Image.Image, values: Tensor) -> None:
        """A picture and the distribution of the finite ``values`` under one tag."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        file = BytesIO()
        save_png(picture, file)
        image = Summary.Image(
            width=picture.width,
            height=picture.height,
            colorspace=3,
            encoded_image_string=file.getvalue(),
        )
        entries = [Summary.Value(tag=tag, image=image)]
        finite = as_array(values).ravel()
        finite = finite[np.isfinite(finite)].astype(np.float64)
        if finite.size:
            counts, edges = np.histogram(finite, bins=_BINS)
            entries.append(
                Summary.Value(
                    tag=tag,
                    histo={
                        "min": finite.min(),
                        "max": finite.max(),
                        "num": finite.size,
                        "sum": finite.sum(),
                        "sum_squares": np.square(finite).sum(),
                        # A bucket reaches from the limit before its own; the first one is empty.
                        "bucket_limit": edges.tolist(),
                        "bucket": [0.0, *counts.tolist()],
                    },
                )
            )
        with self._lock:
            self._writer.add_summary(Summary(value=entries), 0)

    def close(self) -> None:
        """What was added is on the disk afterwards."""
        self._writer.close()


def _writer(folder: Path) -> FileWriter:
    try:
        from torch.utils.tensorboard import FileWriter
    except ImportError as error:
        raise UsageError(
            f"--tensorboard needs the package tensorboard: {error}",
            "pip install 'hookscope[tensorboard]' brings it.",
        ) from None
    try:
        return FileWriter(str(folder))
    except OSError as error:
        raise OutputError(
            f"--tensorboard {folder} cannot be written to: {error.strerror or error}",
            "Name another folder.",
        ) from error
