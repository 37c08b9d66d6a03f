"""The two streams: data on stdout, words on stderr, and a bar where somebody watches."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TextIO

from hookscope.errors import HookscopeError

if TYPE_CHECKING:
    from rich.console import Console as RichConsole

    from hookscope.cli.bar import Bar


class Advance(Protocol):
    """Moves the progress bar on by so many pictures."""

    def __call__(self, count: int = 1) -> None: ...


@dataclass
class Console:
    """Owns stdout and stderr for one command; tests hand it others."""

    out: TextIO
    err: TextIO
    quiet: bool = False
    verbose: bool = False
    _bar: Bar | None = field(default=None, init=False, repr=False)

    @classmethod
    def of_process(cls, *, quiet: bool = False, verbose: bool = False) -> Console:
        """The console of this process, able to print every file name there is."""
        for stream in (sys.stdout, sys.stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(encoding="utf-8", errors="surrogateescape")
        return cls(sys.stdout, sys.stderr, quiet=quiet, verbose=verbose)

    def alone_on_stdout(self) -> redirect_stdout[TextIO]:
        """A block in which ``print`` in a user's network goes to stderr, and only we to stdout."""
        return redirect_stdout(self.err)

    @property
    def colour(self) -> bool:
        """Whether stdout is a terminal whose user wants colour."""
        return self.out.isatty() and not os.environ.get("NO_COLOR")

    @cached_property
    def terminal(self) -> RichConsole:
        """stderr for what is drawn: the bar, and pictures above it."""
        from rich.console import Console as RichConsole

        return RichConsole(file=self.err, no_color=bool(os.environ.get("NO_COLOR")))

    def data(self, line: str) -> None:
        """One line of data, there at once for whoever reads the pipe."""
        self._write(self.out, line)

    def note(self, text: str) -> None:
        """Something worth knowing, unless the user asked for quiet."""
        if not self.quiet:
            self._say(text)

    def detail(self, text: str) -> None:
        """Something for those who asked for more."""
        if self.verbose:
            self._say(text)

    def error(self, error: HookscopeError | str) -> None:
        """A failure and the way out; said under --quiet too."""
        self._say(f"error: {error}")

    def error_line(self, text: str) -> None:
        """One of several failures, below a headline."""
        self._say(f"  {text}")

    def _say(self, text: str) -> None:
        self._write(self.err, text)

    def _write(self, stream: TextIO, line: str) -> None:
        if self._bar is not None and stream.isatty():
            self._bar.make_way()
        stream.write(f"{line}\n")
        stream.flush()

    @contextmanager
    def progress(self, total: int, what: str) -> Iterator[Advance]:
        """A bar on stderr for ``total`` pictures; nothing off a terminal or under --quiet."""
        if self.quiet or total < 2 or not self.err.isatty():
            yield lambda count=1: None
            return
        from hookscope.cli.bar import Bar

        with Bar(self.terminal, total, what) as self._bar:
            try:
                yield self._bar.advance
            finally:
                self._bar = None

    def counter(self, what: str) -> Callable[[int, int], None] | None:
        """Shows ``done`` of ``total`` steps within one picture, on one line of the terminal."""
        if self.quiet or not self.err.isatty():
            return None

        def show(done: int, total: int) -> None:
            end = "\n" if done >= total else ""
            self.err.write(f"\r{what}: {done} of {total}{end}")
            self.err.flush()

        return show


def one_line(name: str) -> str:
    """A file's name as a message can hold it: what would break the line is escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in name)


def silence_stdout() -> None:
    """After the reader has gone: what is still buffered must not raise at exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
