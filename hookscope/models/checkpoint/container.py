"""What kind of file a checkpoint is, told by its content, and what it holds."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from hookscope.errors import CheckpointError, did_you_mean
from hookscope.models.checkpoint import archives, sharded, torch_files
from hookscope.models.checkpoint.zip_records import ZipRecords

_HEAD = 4096
_TAR_MAGIC = slice(257, 262)
_OLD_TORCH_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
_SAFETENSORS_LONGEST_HEADER = 100_000_000
_NOT_CHECKPOINTS = {
    b"\x1f\x8b": ("is compressed with gzip", "Unpack it first: gunzip."),
    b"BZh": ("is compressed with bzip2", "Unpack it first: bunzip2."),
    b"\xfd7zXZ": ("is compressed with xz", "Unpack it first: unxz."),
    b"\x28\xb5\x2f\xfd": ("is compressed with zstd", "Unpack it first: unzstd."),
    b"\x89HDF": ("is an HDF5 file, as Keras writes", "Convert it to a PyTorch state dict first."),
    b"\x89PNG": ("is a picture", "--checkpoint takes a file of weights."),
    b"\xff\xd8\xff": ("is a picture", "--checkpoint takes a file of weights."),
}


def _no_checksums(tensors: Mapping[str, Tensor]) -> list[str]:
    """For what has none, or may have been computed by the code in the file."""
    return []


@dataclass(frozen=True)
class Contents:
    """What a checkpoint holds: mappings inside mappings, tensors among their values.

    ``ran_code`` says that the file was not plain data and was run. ``damaged`` names those of
    the given tensors whose bytes fail the container's checksums.
    """

    container: str
    tree: Any
    ran_code: bool = False
    damaged: Callable[[Mapping[str, Tensor]], list[str]] = _no_checksums


def read(path: Path, *, unsafe_load: bool = False) -> Contents:
    """The contents of a checkpoint of any kind. The file's name decides nothing.

    Raises ``CheckpointError``: not there, not a checkpoint, damaged, or not plain data (which
    ``unsafe_load`` runs).
    """
    if not path.exists():
        names = (other.name for other in path.parent.iterdir()) if path.parent.is_dir() else ()
        raise CheckpointError(f"there is no file {path}", did_you_mean(path.name, names))
    if path.suffix == ".distcp" or path.name == ".metadata":
        raise CheckpointError(
            f"{path} is a part of a DCP checkpoint", f"Name the folder: {path.parent}"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old files and old classes: nothing to act on
            return _read_folder(path) if path.is_dir() else _read_file(path, unsafe_load)
    except CheckpointError:
        raise
    except PermissionError:
        raise CheckpointError(f"{path} may not be read: permission denied") from None
    except Exception as error:  # the readers raise nearly anything on damaged bytes
        if isinstance(error, EOFError) or "unexpected EOF" in str(error):
            raise CheckpointError(
                f"{path.name} is cut off: it ends in the middle of a tensor",
                "Copy or download it again.",
            ) from None
        raise CheckpointError(
            f"{path.name} is damaged, or not a checkpoint after all: {_first_line(error)}",
            "Copy or download it again.",
        ) from None


def _read_folder(folder: Path) -> Contents:
    if (folder / ".metadata").is_file():
        return Contents("DCP folder", sharded.read_dcp(folder))
    indices = sorted(folder.glob(f"*{sharded.INDEX_SUFFIX}"))
    if indices:
        return _read_file(indices[0], unsafe_load=False)
    if (folder / "model.safetensors").is_file():
        return _read_file(folder / "model.safetensors", unsafe_load=False)
    raise CheckpointError(
        f"{folder} is a folder, and holds no checkpoint in pieces (.metadata, *.index.json)",
        "Name one file in it.",
    )


def _read_file(path: Path, unsafe_load: bool) -> Contents:
    if not path.is_file():
        raise CheckpointError(f"{path} is not a file")
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head:
        raise CheckpointError(f"{path.name} is empty", "The copy or download of it failed.")
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _read_zip(path, unsafe_load)
    if head.startswith(_OLD_TORCH_MAGIC):
        tree, ran = torch_files.read_old(path, unsafe_load=unsafe_load)
        return Contents("PyTorch file from before 1.6", tree, ran)
    if _is_safetensors(head):
        return Contents("safetensors", sharded.read_safetensors(path))
    if head.startswith(b"\x80"):
        return Contents("pickle", torch_files.read_plain_pickle(path))
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{") and b'"weight_map"' in path.read_bytes():
        shards = sharded.read_index(path, _tree_of_shard)
        return Contents("shards with an index", shards)
    raise _not_a_checkpoint(path, head, text)


def _tree_of_shard(path: Path) -> Any:
    return _read_file(path, unsafe_load=False).tree


def _read_zip(path: Path, unsafe_load: bool) -> Contents:
    try:
        records = ZipRecords(path)
    except zipfile.BadZipFile:
        raise CheckpointError(
            f"{path.name} is cut off or damaged: its table of contents, which stands at the end, "
            "cannot be read",
            "Copy or download it again.",
        ) from None
    if archives.is_export(records):
        tree = archives.read_export(records)
        return Contents("torch.export archive", tree, False, records.damaged)
    if archives.is_torchscript(records):
        tree = archives.read_torchscript(records)
        return Contents("TorchScript archive", tree, False, records.damaged)
    if "data.pkl" in records:
        tree, ran = torch_files.read_zip(path, records, unsafe_load=unsafe_load)
        return Contents("PyTorch zip file", tree, ran, _no_checksums if ran else records.damaged)
    raise CheckpointError(
        f"{path.name} is a zip archive, but not one that torch wrote: it holds "
        f"{', '.join(records.names[:3])}",
        "If the checkpoint is in it, unpack it first.",
    )


def _is_safetensors(head: bytes) -> bool:
    length = int.from_bytes(head[:8], "little")
    return 2 <= length <= _SAFETENSORS_LONGEST_HEADER and head[8:9] == b"{"


def _not_a_checkpoint(path: Path, head: bytes, text: bytes) -> CheckpointError:
    if text.startswith(b"version https://git-lfs"):
        return CheckpointError(
            f"{path.name} is a Git LFS pointer: it stands for a file that was not fetched",
            "Fetch it: git lfs pull.",
        )
    if text.startswith(b"<"):
        return CheckpointError(
            f"{path.name} is a web page, not a checkpoint",
            "The download gave a page (an error, a login) in place of the file: get it again.",
        )
    for magic, (what, hint) in _NOT_CHECKPOINTS.items():
        if head.startswith(magic):
            return CheckpointError(f"{path.name} {what}", hint)
    if head[_TAR_MAGIC] == b"ustar":
        return CheckpointError(f"{path.name} is a tar archive", "Unpack it first: tar -xf.")
    kind = "a text file" if _is_text(head) else "of no kind that holds PyTorch weights"
    return CheckpointError(
        f"{path.name} is {kind}",
        "Known: what torch.save wrote, safetensors, DCP folders, TorchScript and torch.export "
        "archives.",
    )


def _is_text(head: bytes) -> bool:
    return b"\x00" not in head and all(byte >= 32 or byte in b"\t\r\n\x1b" for byte in head)


def _first_line(error: Exception) -> str:
    if isinstance(error, pickle.UnpicklingError) and "WeightsUnpickler error:" in str(error):
        lines = str(error).rpartition("WeightsUnpickler error:")[2].strip().splitlines()
    else:
        lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    return f"{type(error).__name__}: {lines[0].partition('. ')[0].rstrip('.')}"
