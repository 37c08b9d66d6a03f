"""The exit codes, which scripts rely on."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What the process leaves behind for the shell."""

    OK = 0
    """Everything asked for was done."""
    FAILED = 1
    """Some picture or layer failed; the others were done."""
    UNUSABLE = 2
    """Nothing was started."""
    INTERRUPTED = 130
    """Ctrl-C: what was finished is kept."""
    TERMINATED = 143
    """SIGTERM: what was finished is kept."""
