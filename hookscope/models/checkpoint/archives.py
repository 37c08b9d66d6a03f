"""TorchScript and ``torch.export`` archives, read for their tensors: no graph, no code."""

from __future__ import annotations

import io
import json
from typing import Any

import torch
from torch import Tensor

from hookscope.models.checkpoint.restricted import RestrictedUnpickler
from hookscope.models.checkpoint.torch_files import read_part
from hookscope.models.checkpoint.zip_records import ZipRecords

# The scalar types of torch.export's serialised programs, by the numbers of its schema.
_EXPORT_DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    10: torch.complex64,
    11: torch.complex128,
    12: torch.bool,
    13: torch.bfloat16,
}


def is_torchscript(records: ZipRecords) -> bool:
    return "constants.pkl" in records and "data.pkl" in records


def is_export(records: ZipRecords) -> bool:
    """Whether it is a ``torch.export`` archive, of today's form or of torch 2.6's."""
    return any(
        name.endswith(("serialized_exported_program.json", "archive_format"))
        or (name.startswith("models/") and name.endswith(".json"))
        for name in records.names
    )


def read_torchscript(records: ZipRecords) -> Any:
    """The archive's root module as a tree of inert objects, each with its tensors by name."""
    return RestrictedUnpickler(
        io.BytesIO(records.read("data.pkl")),
        inert=("__torch__",),
        storage=lambda key: records.storage(f"data/{key}"),
    ).load()


def read_export(records: ZipRecords) -> dict[str, Any]:
    """The exported program's state dict; constants that are not in it are left out."""
    state: dict[str, Any] = {}
    for name in records.names:
        if name.startswith("data/weights/") and name.endswith("_config.json"):
            config = json.loads(records.read(name))["config"]
            for weight, payload in config.items():
                state[weight] = _payload(records, payload)
        elif name == "serialized_state_dict.pt" or (
            name.startswith("data/weights/") and name.endswith(".pt")
        ):
            state.update(read_part(records.read(name)))
    return state


def _payload(records: ZipRecords, payload: dict[str, Any]) -> Tensor:
    record = f"data/weights/{payload['path_name']}"
    if payload["use_pickle"]:
        return read_part(records.read(record))
    meta = payload["tensor_meta"]
    if meta["dtype"] not in _EXPORT_DTYPES:
        raise ValueError(f"an unknown number type in {record}")
    size, stride = (tuple(axis["as_int"] for axis in meta[key]) for key in ("sizes", "strides"))
    empty = torch.empty(0, dtype=_EXPORT_DTYPES[meta["dtype"]])
    offset = meta["storage_offset"]["as_int"]
    return empty.set_(records.storage(record), offset, size, stride)
