"""Checkpoints in more than one piece: safetensors, shards with an index, DCP folders."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint.restricted import BlockedGlobal, RestrictedUnpickler, checked
from hookscope.models.checkpoint.torch_files import read_part

INDEX_SUFFIX = ".index.json"


def read_safetensors(path: Path) -> dict[str, Any]:
    """Tensors by name, mapped from the file, and its own notes under ``__metadata__``."""
    with safe_open(str(path), framework="pt", device="cpu") as file:
        tensors: dict[str, Any] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return {"__metadata__": dict(file.metadata() or {}), **tensors}


def read_index(path: Path, read_shard: Callable[[Path], Any]) -> dict[str, Any]:
    """The tensors that an ``*.index.json`` spreads over the files beside it."""
    index = json.loads(path.read_bytes())
    spread: dict[str, str] = index["weight_map"]
    tree: dict[str, Any] = {"__metadata__": index.get("metadata") or {}}
    for name in dict.fromkeys(spread.values()):
        shard = path.parent / name
        if shard.resolve().parent != path.parent.resolve() or not shard.is_file():
            raise CheckpointError(
                f"{path.name} names the shard {name!r}, which does not lie beside it",
                f"All {len(set(spread.values()))} shards belong into one folder with the index.",
            )
        tree.update(read_shard(shard))
    absent = [name for name in spread if name not in tree]
    if absent:
        raise CheckpointError(
            f"{path.name} promises {absent[0]} in {spread[absent[0]]}, which does not hold it",
            "The shards and the index are not of one checkpoint.",
        )
    return tree


def read_dcp(folder: Path) -> dict[str, Any]:
    """The tensors of a ``torch.distributed.checkpoint`` folder, put together from their chunks.

    The ``.metadata`` is a pickle and torch unpickles it freely; here it gives inert objects.
    """
    pickled = checked((folder / ".metadata").read_bytes())
    try:
        metadata = RestrictedUnpickler(pickled, inert=("torch.distributed.checkpoint",)).load()
    except BlockedGlobal as error:
        raise CheckpointError(
            f"{folder.name}/.metadata asks for {error.name}, which no DCP folder needs: it is "
            "not opened"
        ) from None
    where: dict[tuple[str, tuple[int, ...]], Any] = {
        (index.fqn, tuple(getattr(index, "offset", None) or ())): info
        for index, info in metadata.storage_data.items()
    }
    paths = getattr(metadata, "planner_data", None) or {}
    tree: dict[str, Any] = {}
    for name, entry in metadata.state_dict_metadata.items():
        if hasattr(entry, "chunks"):
            parts = [str(part) for part in paths.get(name, (name,))]
            inner = tree
            for part in parts[:-1]:
                inner = inner.setdefault(part, {})
            inner[parts[-1]] = _put_together(folder, name, entry, where)
    return tree


def _put_together(
    folder: Path, name: str, entry: Any, where: dict[tuple[str, tuple[int, ...]], Any]
) -> Tensor:
    whole: Tensor | None = None
    covered = 0
    for chunk in entry.chunks:
        offsets, sizes = tuple(chunk.offsets), tuple(chunk.sizes)
        part = _chunk(folder, where[name, offsets])
        if tuple(part.shape) != sizes:
            raise ValueError(f"a chunk of {name} is not as large as the metadata says")
        if sizes == tuple(entry.size):
            return part
        if whole is None:
            whole = torch.empty(tuple(entry.size), dtype=part.dtype)
        region = tuple(
            slice(start, start + size) for start, size in zip(offsets, sizes, strict=True)
        )
        whole[region] = part
        covered += math.prod(sizes)
    if whole is None or covered < whole.numel():
        raise ValueError(f"chunks of {name} are missing")
    return whole


def _chunk(folder: Path, info: Any) -> Tensor:
    if getattr(info, "transform_descriptors", None):
        raise ValueError("the folder is compressed")
    path = folder / info.relative_path
    if path.resolve().parent != folder.resolve():
        raise ValueError(f"{info.relative_path} is outside the folder")
    with path.open("rb") as file:
        file.seek(info.offset)
        tensor = read_part(file.read(info.length))
    return tensor.detach()
