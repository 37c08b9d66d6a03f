"""Between a shell and the answers: words come in as it keeps them, and go out in its spelling.

The protocols are those of the scripts that ``--install-completion`` installs, which are typer's.
typer's own answers have no quotes, though, and bash cuts words at ``:``, ``=`` and ``@``, of which
the names of models and layers are full.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TextIO

from typer import Typer

from hookscope.cli.completion.answers import Answer, answers, flag_of

VARIABLE = "_HOOKSCOPE_COMPLETE"


class Line(NamedTuple):
    """The words before the one to complete, and that word, without their quotes.

    ``lead``: how much of the word the shell takes for words of their own. ``quote``: the one
    that the word has opened.
    """

    before: list[str]
    word: str
    lead: str = ""
    quote: str = ""


def complete(app: Typer) -> int:
    """Complete the line that the environment describes; an exit code. Never fails or complains."""
    read, write = _SHELLS.get(os.environ[VARIABLE].partition("_")[2], (_typed_line, _fish_text))
    try:
        with _only_voice() as out:
            try:
                line = read()
                text = write(line, answers(app, line.before, line.word))
            except (Exception, SystemExit):
                # Half a line may be anything; whoever is typing it wants no report of that.
                text = write(Line([], ""), [])
            if os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
                return int(not text)
            out.write(f"{text}\n" if text else "")
    except OSError:  # nobody reads any more
        pass
    return 0


def split(text: str) -> list[str]:
    """The words of a line as a shell reads them; the last is the one that is being typed."""
    words, quote, escaped, begun = [""], "", False, False
    for char in text:
        if escaped:
            words[-1] += char
            escaped = False
        elif char == "\\" and quote != "'":
            escaped = begun = True
        elif quote:
            words[-1] += char * (char != quote)
            quote *= char != quote
        elif char in "'\"":
            quote, begun = char, True
        elif not char.isspace():
            words[-1] += char
            begun = True
        elif begun:
            words.append("")
            begun = False
    return words


def _bash_line() -> Line:
    text, at = os.environ["COMP_WORDS"], int(os.environ["COMP_CWORD"])
    # One word a line in typer's script; other callers put them all on one.
    pieces = text.split("\n" if "\n" in text else " ")
    pieces += [""] * (at + 1 - len(pieces))
    words, rest = _glued(pieces[: at + 1]), _glued(pieces[at + 1 :])
    piece, word = pieces[at], words[-1]
    lead = word if _cuts(piece) else word.removesuffix(piece)
    # What stands behind the cursor counts as well, such as the model of the layer.
    before = [*words[1:2], *rest, *words[2:-1]] if len(words) > 2 else []
    return Line(
        [_expanded(word) for word in before],
        split(word)[0],
        lead=split(lead)[0],
        quote=piece[:1] if piece.startswith(("'", '"')) else "",
    )


def _glued(pieces: list[str]) -> list[str]:
    """Words as they were typed, out of what bash has cut them into."""
    words: list[str] = []
    glue = False
    for piece in pieces:
        if words and piece and (glue or _cuts(piece)):
            words[-1] += piece
        else:
            words.append(piece)
        glue = _cuts(piece)
    return words


def _cuts(piece: str) -> bool:
    return bool(piece) and not piece.strip(":=@")


def _expanded(word: str) -> str:
    """A finished word of bash's as the command will get it, as far as that is easy to tell."""
    plain = split(word)[0]
    return os.path.expanduser(plain) if word.startswith("~") else plain


def _bash_text(line: Line, found: list[Answer]) -> str:
    values = [flag_of(line.word) + one.value for one in found]
    ends = [value.removeprefix(line.lead) for value in values if value.startswith(line.lead)]
    special, spelling = {
        "'": (r"'", r"'\\''"),
        '"': (r"[\\\"$`]", r"\\\g<0>"),
        "": (r"[^\w.,:=@%+/-]", r"\\\g<0>"),
    }[line.quote]
    return "\n".join(re.sub(special, spelling, end) for end in ends)


def _typed_line() -> Line:
    """How zsh and fish tell it: as one text, up to the cursor."""
    words = split(os.environ["_TYPER_COMPLETE_ARGS"])
    return Line([os.path.expanduser(word) for word in words[1:-1]], words[-1])


def _zsh_text(line: Line, found: list[Answer]) -> str:
    if not found:
        return "_files"
    items = []
    for value, meaning in found:
        value = re.sub(r"[\\:]", r"\\\g<0>", value)
        items.append(shlex.quote(f"{value}:{meaning}" if meaning else value))
    flag = flag_of(line.word)
    skip = f"compset -P {shlex.quote(flag)}; " if flag else ""
    return f"{skip}local -a answers; answers=({' '.join(items)}); _describe -V value answers"


def _fish_text(line: Line, found: list[Answer]) -> str:
    flag = flag_of(line.word)
    return "\n".join(f"{flag}{value}\t{meaning}".rstrip("\t") for value, meaning in found)


def _powershell_line() -> Line:
    words = [word for word in split(os.environ["_TYPER_COMPLETE_ARGS"]) if word]
    word = split(os.environ.get("_TYPER_COMPLETE_WORD_TO_COMPLETE", ""))[0]
    return Line(words[1:-1] if word else words[1:], word)


def _powershell_text(line: Line, found: list[Answer]) -> str:
    rows = []
    for value, meaning in found:
        value = flag_of(line.word) + value
        if re.search(r"[^\w.:=+/-]", value):
            value = "'" + value.replace("'", "''") + "'"
        rows.append(f"{value}:::{meaning or ' '}")
    return "\n".join(rows)


_SHELLS: dict[str, tuple[Callable[[], Line], Callable[[Line, list[Answer]], str]]] = {
    "bash": (_bash_line, _bash_text),
    "zsh": (_typed_line, _zsh_text),
    "fish": (_typed_line, _fish_text),
    "powershell": (_powershell_line, _powershell_text),
    "pwsh": (_powershell_line, _powershell_text),
}


@contextmanager
def _only_voice() -> Iterator[TextIO]:
    """stdout for the answers alone: whatever else is printed from here on goes nowhere.

    Below Python too, since libraries may complain there; and nothing is asked at the terminal.
    """
    sys.stdout.flush()
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="surrogateescape")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nowhere, number)
    with out:
        yield out
