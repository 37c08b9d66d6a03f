"""``--show``: results on the terminal, drawn as that terminal can: kitty, sixel or half blocks."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from hookscope.cli.console import Console
from hookscope.errors import UsageError

if TYPE_CHECKING:
    from PIL.Image import Image
    from rich.console import Console as RichConsole
    from rich.console import ConsoleOptions, RenderResult

_PICTURES = (".png", ".jpg", ".webp")
_MOST_COLUMNS = 200  # kitty's placeholders cannot count to 300
_LEAST_LINES = 4
_LONGEST_TO_SHORTEST = 8  # beyond, a picture of the least height would be less than a column wide

# A terminal may answer anything, have no size, or be gone.
_ODD_ANSWERS: tuple[type[Exception], ...] = (OSError, ValueError, ArithmeticError)
if sys.platform != "win32":
    import termios

    _ODD_ANSWERS += (termios.error,)


def require_library() -> None:
    """Raises ``UsageError`` where ``--show`` has nothing to draw with."""
    try:
        import textual_image  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--show: textual-image cannot be imported: {error}",
            "Install it: pip install 'hookscope[show]'",
        ) from None


class Screen:
    """The terminal behind stderr, where results are shown; stdout keeps the data to itself."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._renderable = _way_to_draw(console)
        self._shown: set[str] = set()

    @classmethod
    def of(cls, console: Console) -> Screen | None:
        """The screen, or ``None`` and a note where nobody would see it."""
        if console.err.isatty():
            return cls(console)
        console.note("note: --show needs a terminal, and stderr is none")
        return None

    def show(self, files: Mapping[str, str]) -> None:
        """Draw the first picture of a record's ``files``, unless another record had it too."""
        path = next((path for path in files.values() if path.endswith(_PICTURES)), None)
        if path is None or path in self._shown:
            return
        self._shown.add(path)
        try:
            self._draw(_opened(Path(path)))
        except (OSError, ValueError) as error:
            self._console.note(f"note: {path} cannot be shown: {error}")

    def _draw(self, picture: Image) -> None:
        terminal = self._console.terminal
        drawing = _Fitted(
            self._renderable(picture, width="auto", height="auto"),
            width=min(terminal.width, _MOST_COLUMNS),
            height=max(terminal.height // 2, _LEAST_LINES),
        )
        with _spoken_to(self._console.err, None):
            terminal.print(drawing)


@dataclass(frozen=True)
class _Fitted:
    """A renderable with a limit of its own; one given to ``print`` would stretch the bar too."""

    renderable: Any
    width: int
    height: int

    def __rich_console__(self, console: RichConsole, options: ConsoleOptions) -> RenderResult:
        size = options.update(width=self.width, height=self.height)
        yield from console.render(self.renderable, size)


def _way_to_draw(console: Console) -> type[Any]:
    """The renderable for this terminal, which is asked what it knows while nobody else uses it."""
    logging.getLogger("textual_image").addHandler(logging.NullHandler())
    if console.terminal.color_system is None or console.terminal.no_color:
        return _renderable("UnicodeImage", None, None)
    keyboard = _keyboard(console.err)
    if keyboard is None:
        return _renderable("HalfcellImage", None, None)
    with keyboard:
        try:
            return _renderable("Image", console.err, keyboard)
        except _ODD_ANSWERS:
            return _renderable("HalfcellImage", None, None)


def _renderable(name: str, screen: TextIO | None, keyboard: TextIO | None) -> type[Any]:
    """One of textual-image's classes; without a ``screen`` it does not ask for anything."""
    with _spoken_to(screen or io.StringIO(), keyboard):
        from PIL import Image
        from rich.console import Console as RichConsole
        from rich.measure import Measurement
        from textual_image import renderable

        chosen: type[Any] = getattr(renderable, name)
        # Measuring makes it find out how large a character is, and remember that.
        anywhere = RichConsole(file=io.StringIO())
        Measurement.get(anywhere, anywhere.options, chosen(Image.new("RGB", (1, 1))))
    return chosen


@contextmanager
def _spoken_to(screen: TextIO, keyboard: TextIO | None) -> Iterator[None]:
    """A block in which textual-image talks to these: it takes the process's first stdin and stdout,
    which here are for lists and data."""
    before = {name: getattr(sys, name) for name in ("__stdout__", "__stdin__")}
    vars(sys).update(__stdout__=screen, __stdin__=keyboard)
    try:
        yield
    finally:
        vars(sys).update(before)


def _keyboard(screen: TextIO) -> TextIO | None:
    """Where the terminal's answers come in; ``None`` where it must not be asked.

    A job in the background would be stopped for it.
    """
    if sys.platform == "win32":
        return None
    try:
        if os.tcgetpgrp(screen.fileno()) != os.getpgrp():
            return None
        return open(os.ttyname(screen.fileno()))
    except OSError:  # not the terminal that this process belongs to
        return None


def _opened(path: Path) -> Image:
    """The picture in true colour, and never so narrow that nothing would be left of it."""
    from PIL import Image, ImageOps

    with Image.open(path) as picture:
        plain = picture.convert("RGB")
    least = -(-max(plain.size) // _LONGEST_TO_SHORTEST)
    size = max(plain.width, least), max(plain.height, least)
    return plain if size == plain.size else ImageOps.pad(plain, size)
