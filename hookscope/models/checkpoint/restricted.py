"""An unpickler for what ``torch.load(weights_only=True)`` does not read, as strict as that.

It reads the pickles of other protocols than 2 (a DCP folder's ``.metadata``, plain pickles of
arrays) and those of TorchScript archives. A name in the file gives a harmless global, an inert
stand-in that only remembers what it was handed, or ``BlockedGlobal``; nothing is imported.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import IO, Any

import torch
from torch import Tensor

from hookscope.models.checkpoint.harmless import harmless_globals

_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8  # CPython's Py_TPFLAGS
_STORAGE_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    "UntypedStorage": torch.uint8,
}


class BlockedGlobal(pickle.UnpicklingError):
    """The file names something that is neither harmless nor stood in for."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Unsupported global: GLOBAL {name}")
        self.name = name


class Inert:
    """Stands for an object of a class that is not imported: its state, and nothing done with it."""

    def __new__(cls, *arguments: Any, **_: Any) -> Inert:
        self = super().__new__(cls)
        self.__dict__["arguments"] = arguments
        return self

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {"state": state})


@dataclass(frozen=True)
class _Storage:
    content: torch.UntypedStorage
    dtype: torch.dtype


def checked(content: bytes) -> IO[bytes]:
    """A pickle that no checksum covers, looked through before it is unpickled.

    Python believes the lengths and the memo's indices in a pickle, and may take all memory for a
    flipped bit. Raises ``ValueError`` or ``UnpicklingError``.
    """
    for opcode, argument, position in pickletools.genops(content):
        if opcode.name.endswith("PUT") and argument is not None and argument > (position or 0):
            raise pickle.UnpicklingError("an index beyond the pickle's size")
    return io.BytesIO(content)


class RestrictedUnpickler(pickle.Unpickler):
    """Unpickles ``file``; ``inert`` names the packages whose classes get a stand-in.

    ``storage(key)`` gives the bytes that a tensor of the file refers to.
    """

    def __init__(
        self,
        file: IO[bytes],
        *,
        inert: tuple[str, ...] = (),
        storage: Callable[[str], torch.UntypedStorage] | None = None,
    ) -> None:
        super().__init__(file)
        self._inert = inert
        self._storage = storage
        self._known = _known_globals()

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if any(module == package or module.startswith(f"{package}.") for package in self._inert):
            return type(name, (Inert,), {})
        if full not in self._known:
            raise BlockedGlobal(full)
        found = self._known[full]
        # A pickle may set attributes on what it is given: of a class, give it a throw-away child.
        if (
            isinstance(found, type)
            and found.__flags__ & (_HEAP_TYPE | _IMMUTABLE_TYPE) == _HEAP_TYPE
        ):
            return type(found.__name__, (found,), {})
        return found

    def persistent_load(self, pid: Any) -> _Storage:
        if self._storage is None or not isinstance(pid, tuple) or pid[0] != "storage":
            raise pickle.UnpicklingError("a reference to something outside the pickle")
        _, dtype, key, *_ = pid
        return _Storage(self._storage(str(key)), dtype)


def _known_globals() -> dict[str, Any]:
    """Full name -> what to use; functions made anew, so that a pickle can change no module's."""

    def rebuild_tensor(
        storage: _Storage, offset: int, size: Any, stride: Any, *_: Any, dtype: Any = None
    ) -> Tensor:
        empty = torch.empty(0, dtype=dtype or storage.dtype)
        last = sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        # Otherwise set_ would let the storage grow, with whatever the memory held.
        if 0 not in size and (offset + last + 1) * empty.itemsize > storage.content.nbytes():
            raise pickle.UnpicklingError("a tensor reaches beyond its bytes")
        return empty.set_(storage.content, offset, tuple(size), tuple(stride))

    def rebuild_tensor_v3(
        storage: _Storage,
        offset: int,
        size: Any,
        stride: Any,
        _: Any,
        __: Any,
        dtype: Any,
        *___: Any,
    ) -> Tensor:
        return rebuild_tensor(storage, offset, size, stride, dtype=dtype)

    def storage_from_bytes(content: bytes) -> _Storage:
        typed = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return _Storage(typed.untyped(), typed.dtype)

    def first(value: Any, *_: Any) -> Any:
        return value

    return {
        **harmless_globals(),
        **{f"torch.{name}": dtype for name, dtype in _STORAGE_DTYPES.items()},
        "torch.storage.UntypedStorage": torch.uint8,
        **{str(dtype): dtype for dtype in _dtypes()},
        "collections.OrderedDict": OrderedDict,
        "_codecs.encode": lambda text, encoding: str(text).encode(str(encoding)),
        "builtins.set": set,
        "builtins.complex": complex,
        "builtins.bytearray": bytearray,
        "torch.Size": torch.Size,
        "torch.device": first,
        "torch.serialization._get_layout": first,
        "torch._utils._rebuild_tensor": rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": rebuild_tensor,
        "torch._utils._rebuild_tensor_v3": rebuild_tensor_v3,
        "torch._utils._rebuild_parameter": first,
        "torch.storage._load_from_bytes": storage_from_bytes,
        **{
            f"torch.jit._pickle.{name}": first
            for name in ("build_intlist", "build_doublelist", "build_boollist", "build_tensorlist")
        },
        "torch.jit._pickle.restore_type_tag": first,
    }


def _dtypes() -> Iterable[torch.dtype]:
    return {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
