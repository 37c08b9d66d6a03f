"""What ``torch.save`` wrote: zip files and those from before 1.6, opened without running them."""

from __future__ import annotations

import io
import os
import pickle
import pickletools
import re
import sys
import zipfile
from pathlib import Path
from typing import IO, Any

import torch

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint.harmless import harmless_globals
from hookscope.models.checkpoint.restricted import BlockedGlobal, RestrictedUnpickler, checked
from hookscope.models.checkpoint.zip_records import ZipRecords

_WEIGHTS_ONLY_PROTOCOL = 2
_PICKLES_OF_OLD_FILE = 4  # magic number, version, system, and then the object


def read_zip(path: Path, records: ZipRecords, *, unsafe_load: bool) -> tuple[Any, bool]:
    """The object in a ``torch.save`` zip, and whether code was run for it.

    Tensors are mapped from the file, and on the CPU wherever they were saved.
    """
    pickled = records.read("data.pkl")
    # torch picks safetensors by the name: such a name must not reach it.
    by_name = records.mappable and path.suffix != ".safetensors"
    try:
        if pickled[:1] == b"\x80" and pickled[1] > _WEIGHTS_ONLY_PROTOCOL:
            reader = RestrictedUnpickler(
                io.BytesIO(pickled), storage=lambda key: records.storage(f"data/{key}")
            )
            return reader.load(), False
        return _load(path, weights_only=True, by_name=by_name), False
    except pickle.UnpicklingError as error:
        if _blocked_name(error) is None:
            raise
        if unsafe_load:
            return _run(path, by_name=by_name), True
        raise _refusal(path, _names_in(io.BytesIO(pickled), 1), error) from None


def read_old(path: Path, *, unsafe_load: bool) -> tuple[Any, bool]:
    """The object in a file from before torch 1.6, and whether code was run. It is not mapped."""
    try:
        return _load(path, weights_only=True, by_name=False), False
    except pickle.UnpicklingError as error:
        if _blocked_name(error) is None:
            raise
        if unsafe_load:
            return _run(path, by_name=False), True
        with path.open("rb") as file:
            raise _refusal(path, _names_in(file, _PICKLES_OF_OLD_FILE), error) from None


def read_plain_pickle(path: Path) -> Any:
    """The object in a plain pickle: arrays or tensors in dictionaries, as some model zoos have."""
    content = path.read_bytes()
    try:
        return RestrictedUnpickler(checked(content)).load()
    except BlockedGlobal as error:
        raise _refusal(path, _names_in(io.BytesIO(content), 1), error) from None


def read_part(content: bytes) -> Any:
    """The object that ``torch.save`` wrote into a part of a larger file, checksums looked at."""
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            checked_when_written = all(e.CRC for e in archive.infolist() if e.file_size)
            damaged = archive.testzip() if checked_when_written else None
        if damaged:
            raise zipfile.BadZipFile(f"record {damaged} does not match its checksum")
    with harmless_only():
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)


def harmless_only() -> Any:
    """A block in which ``weights_only=True`` allows the short list of harmless globals too."""
    theirs = torch.serialization.get_safe_globals()
    ours = [each for each in harmless_globals().values() if each not in theirs]
    return torch.serialization.safe_globals(ours)  # type: ignore[arg-type]


def _load(path: Path, *, weights_only: bool, by_name: bool) -> Any:
    with harmless_only():
        if by_name:
            return torch.load(str(path), map_location="cpu", weights_only=weights_only, mmap=True)
        with path.open("rb") as file:
            return torch.load(file, map_location="cpu", weights_only=weights_only, mmap=False)


def _run(path: Path, *, by_name: bool) -> Any:
    """Unpickle with everything that the file asks for, looking for classes here too."""
    known_folders = list(sys.path)
    sys.path.append(os.getcwd())
    try:
        return _load(path, weights_only=False, by_name=by_name)
    except (ImportError, AttributeError) as error:
        raise CheckpointError(
            f"{path.name} needs a class that Python does not find: {error}",
            "Run hookscope in the folder that the file was saved from, or save "
            "model.state_dict() instead of the whole model.",
        ) from None
    finally:
        sys.path[:] = known_folders


def _refusal(path: Path, named: set[str], error: pickle.UnpicklingError) -> CheckpointError:
    blocked = _blocked_name(error) or "an unknown class"
    if any(name.startswith("torch.nn.modules") for name in named):
        return CheckpointError(
            f"{path.name} holds a whole pickled model ({blocked}), and reading it runs code from "
            "the file",
            "If you trust where it comes from: --unsafe-load. Better: save model.state_dict().",
        )
    return CheckpointError(
        f"{path.name} asks for {blocked}, which is blocked: it is not plain data, and reading it "
        "runs code from the file",
        "If you trust where it comes from: --unsafe-load.",
    )


def _blocked_name(error: pickle.UnpicklingError) -> str | None:
    if "Only persistent_load of storage is allowed" in str(error):
        return "a module"  # files from before 1.6 refer to the classes of a whole model so
    named = re.search(r"GLOBAL (\S+)", str(error))
    return named.group(1) if named else None


def _names_in(file: IO[bytes], pickles: int) -> set[str]:
    """What the first pickles of a file name (and its other strings), without running them."""
    return {
        argument.replace(" ", ".")
        for _ in range(pickles)
        for _, argument, _ in pickletools.genops(file)
        if isinstance(argument, str)
    }
