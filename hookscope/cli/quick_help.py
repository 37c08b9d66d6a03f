"""Help in half of the time."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

_UNUSED = "rich.markdown"


def hasten_help(arguments: Sequence[str]) -> None:
    """Where help is asked for, import what typer prints it with, but for Rich's Markdown.

    That one brings a parser along, which takes as long as all the rest, and serves a mode of help
    that is not ours.
    """
    if (arguments and not {"-h", "--help"}.intersection(arguments)) or _UNUSED in sys.modules:
        return
    stand_in: Any = ModuleType(_UNUSED)
    stand_in.Markdown = object
    sys.modules[_UNUSED] = stand_in
    try:
        with suppress(ImportError):  # another typer may be built otherwise
            importlib.import_module("typer.rich_utils")
    finally:
        del sys.modules[_UNUSED]
