"""The globals that a checkpoint may name although ``weights_only=True`` does not know them.

Each is plain data: making one runs nothing that the file brings along. The list is explicit and
short on purpose; whatever is not on it is refused by its name.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import types
from collections.abc import Callable
from typing import Any

import torch

from hookscope.models.checkpoint.numpy_pickles import numpy_globals

_AS_THEY_ARE = (
    argparse.Namespace,
    types.SimpleNamespace,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    datetime.timezone,
    torch.torch_version.TorchVersion,
    # No range: tuple(range(10**12)) is harmless to everything but the memory.
    *(int, float, str, bool, list, tuple, dict, frozenset, slice),
)
_PATHS = ("Path", "PosixPath", "WindowsPath", "PurePath", "PurePosixPath", "PureWindowsPath")
_PATH_MODULES = ("pathlib", "pathlib._local")  # the second is Python 3.13's


def harmless_globals() -> dict[str, Callable[..., Any]]:
    """Full name -> what to use where a file asks for it; the names are its own, too.

    A path becomes a pure one, so that a file written on Windows opens on Linux; NumPy's arrays
    become our own stand-ins.
    """
    named: list[tuple[str, Callable[..., Any]]] = [
        *((f"{module}.{name}", _pure(name)) for module in _PATH_MODULES for name in _PATHS),
        *numpy_globals(),
    ]
    return {
        **{f"{each.__module__}.{each.__qualname__}": each for each in _AS_THEY_ARE},
        **{name: _called(name, value) for name, value in named},
    }


def _pure(name: str) -> type[pathlib.PurePath]:
    return pathlib.PureWindowsPath if "Windows" in name else pathlib.PurePosixPath


def _called(full_name: str, value: Callable[..., Any]) -> Callable[..., Any]:
    """The same under another name: torch goes by what a class or function is called."""
    module, _, name = full_name.rpartition(".")
    if isinstance(value, type):
        return type(name, (value,), {"__module__": module, "__qualname__": name})

    def renamed(*arguments: Any) -> Any:
        return value(*arguments)

    renamed.__module__, renamed.__name__, renamed.__qualname__ = module, name, name
    return renamed
