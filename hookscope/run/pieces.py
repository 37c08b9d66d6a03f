"""The files that a record can have: pictures and raw tensors, written into an open file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hookscope.output.store import Piece
from hookscope.render.encode import save_picture
from hookscope.render.grid import TILES
from hookscope.run.clock import Clock


def picture_piece(kind: str, name: str, draw: Callable[[], Image.Image], clock: Clock) -> Piece:
    """A PNG, JPEG or WebP by its extension, drawn only when it has to be written."""
    extension = name.rpartition(".")[2]
    about: dict[str, Any] = {}

    def write(file: BinaryIO, text: Mapping[str, str]) -> None:
        with clock.stage("render"):
            picture = draw()
        if TILES in picture.info:
            about[TILES] = picture.info[TILES]
        with clock.stage("encode"):
            save_picture(picture, file, extension, text)  # type: ignore[arg-type]

    return Piece(kind, name, write, about)


def tensor_piece(name: str, tensor: Tensor, kind: str = "tensor") -> Piece:
    """The raw tensor in the format of the name's extension: npy, npz, safetensors or pt.

    In npz and safetensors its key is ``tensor``. NumPy knows no bfloat16: float32 there.
    """
    extension = name.rpartition(".")[2]

    def write(file: BinaryIO, text: Mapping[str, str]) -> None:
        _SAVERS[extension](tensor.contiguous(), file)

    return Piece(kind, name, write)


def _save_npy(tensor: Tensor, file: BinaryIO) -> None:
    np.save(file, _array(tensor))


def _save_npz(tensor: Tensor, file: BinaryIO) -> None:
    np.savez(file, tensor=_array(tensor))


def _save_safetensors(tensor: Tensor, file: BinaryIO) -> None:
    from safetensors.torch import save

    file.write(save({"tensor": tensor}))


def _save_pt(tensor: Tensor, file: BinaryIO) -> None:
    # A view would be saved with all of the storage that it looks into.
    torch.save(tensor.clone(), file)


def _array(tensor: Tensor) -> Any:
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


_SAVERS: dict[str, Callable[[Tensor, BinaryIO], None]] = {
    "npy": _save_npy,
    "npz": _save_npz,
    "safetensors": _save_safetensors,
    "pt": _save_pt,
}
