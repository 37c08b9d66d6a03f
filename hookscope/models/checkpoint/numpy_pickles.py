"""NumPy arrays and scalars in a pickle, put together here instead of by what the pickle says.

NumPy believes the flags in a pickled dtype; a wrong one makes it take numbers for objects.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np

_PLAIN_CODE = re.compile(r"[?biufcSU]\d*")
_CORES = ("numpy.core", "numpy._core")  # NumPy 1, NumPy 2


class PickledDtype:
    """Stands for ``numpy.dtype``; ``real`` is None for what is not plain numbers or text."""

    def __init__(self, code: Any = "", *_: Any) -> None:
        self.code = code
        self.order = "="

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    @property
    def real(self) -> np.dtype[Any] | None:
        if not isinstance(self.code, str) or not _PLAIN_CODE.fullmatch(self.code):
            return None
        return np.dtype(f"{self.order if self.order in ('<', '>') else '='}{self.code}")


class PickledArray:
    """Stands for ``numpy.ndarray``; ``real`` is None for an array of objects."""

    def __init__(self, *_: Any) -> None:
        self.real: np.ndarray | None = None
        self.objects: list[Any] = []

    def __setstate__(self, state: Any) -> None:
        *_, shape, dtype, is_fortran, content = state
        if isinstance(content, list):
            self.objects = content
        else:
            self._fill(content, dtype, shape, "F" if is_fortran else "C")

    def _fill(self, content: Any, dtype: PickledDtype, shape: Any, order: Any) -> None:
        if dtype.real is not None:
            raw = content.encode("latin-1") if isinstance(content, str) else bytes(content)
            self.real = np.frombuffer(raw, dtype.real).reshape(tuple(shape), order=order)

    def tolist(self) -> list[Any]:
        return self.objects if self.real is None else self.real.tolist()


def _reconstruct(kind: Any, *_: Any) -> PickledArray:
    if not (isinstance(kind, type) and issubclass(kind, PickledArray)):
        raise pickle.UnpicklingError("an array of an unknown kind")
    return kind()  # the very class that the file named: torch fills no other


def _from_buffer(content: Any, dtype: PickledDtype, shape: Any, order: Any, *_: Any) -> Any:
    array = PickledArray()
    array._fill(content, dtype, shape, order)
    return array


def _scalar(dtype: PickledDtype, content: Any = b"", *_: Any) -> Any:
    if dtype.real is None:
        return content
    raw = content.encode("latin-1") if isinstance(content, str) else content
    return np.frombuffer(raw, dtype.real)[0].item()


def numpy_globals() -> list[tuple[str, Callable[..., Any]]]:
    """Pairs of the full name under which pickles ask for something, and what stands for it."""
    return [
        ("numpy.ndarray", PickledArray),
        ("numpy.dtype", PickledDtype),
        *((f"{core}.multiarray._reconstruct", _reconstruct) for core in _CORES),
        *((f"{core}.multiarray.scalar", _scalar) for core in _CORES),
        *((f"{core}.numeric._frombuffer", _from_buffer) for core in _CORES),
    ]
