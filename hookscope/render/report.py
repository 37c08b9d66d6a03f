"""The report: one page of markup, style and script, which links to the pictures beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any
from urllib.parse import quote

from hookscope import __version__
from hookscope.render.verdicts import verdicts

GENERATOR = "hookscope"  # with the version behind it, in the page's <meta name="generator">
_SCRIPTS = ("entries", "filters", "gallery", "channels", "panel", "viewer", "start")
_LEFT_OUT = frozenset({"schema", "files", "preprocess"})  # told apart, once or not at all
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


@dataclass(frozen=True)
class Entry:
    """One record of the page, its paths relative to the page.

    ``tiles``: kind of file -> where the channels of that grid lie, as ``feature_grid`` says.
    """

    record: Mapping[str, Any]
    tiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def report(entries: Sequence[Entry], *, title: str) -> str:
    """The HTML of a page that shows ``entries`` in their order.

    Nothing in a record is trusted: names are text on the page and quoted in links, and the page
    allows no script but its own. Numbers that are not finite become null.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    loader = PackageLoader("hookscope.render", "templates")
    page = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    style, theme = _part("report.css"), _part("report_theme.js")
    script = "\n".join(_part(f"report_{name}.js") for name in _SCRIPTS)
    return page.get_template("report.html.j2").render(
        generator=f"{GENERATOR} {__version__}",
        title=title,
        summary=_summary(entries),
        policy=_policy(style, (theme, script)),
        style=Markup(style),
        theme=Markup(theme),
        script=Markup(script),
        data=Markup(_data(entries)),
    )


def link(path: str) -> str:
    """A path, relative to the page or absolute, as a URL: every unusual byte is quoted."""
    absolute = path.startswith("/")
    if os.name == "nt":
        absolute = absolute or bool(_DRIVE.match(path))
        path = path.replace("\\", "/")
    try:
        quoted = quote(path, errors="surrogateescape")
    except UnicodeEncodeError:  # half a letter, which no file system has
        quoted = quote(path, errors="replace")
    # The dot keeps a colon in the name from making it a scheme, such as javascript:
    return f"file:///{quoted.lstrip('/')}" if absolute else f"./{quoted}"


def _data(entries: Iterable[Entry]) -> str:
    """What the script reads, safe inside a script element."""
    common = _Common()
    page = {"entries": [_shown(entry, common) for entry in entries], "common": common.values}
    try:
        text = json.dumps(page, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_finite(page), separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


class _Common:
    """What thousands of entries share is told once: each names the place of its value."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        place = self._places.setdefault(json.dumps(value), len(self.values))
        if place == len(self.values):
            self.values.append(value)
        return place


def _shown(entry: Entry, common: _Common) -> dict[str, Any]:
    """An entry for the script; what is unknown or empty is left out."""
    record = entry.record
    files = record.get("files") or {}
    words = [common.place(asdict(verdict)) for verdict in verdicts(record)]
    feeding = record.get("preprocess")
    parts = {
        "record": {
            key: value
            for key, value in record.items()
            if value is not None and key not in _LEFT_OUT
        },
        "files": {kind: [name, *_odd(name)] for kind, name in files.items() if name},
        "original": _odd(record.get("image") or ""),
        "tiles": entry.tiles,
        "preprocess": common.place(feeding) if feeding else None,
        "verdicts": words,
    }
    return {key: part for key, part in parts.items() if part not in (None, [], {})}


def _odd(path: str) -> list[str]:
    """The link, unless the script makes the same of the path: a dot and a slash before it."""
    quoted = link(path)
    return [] if quoted == f"./{path}" else [quoted]


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _summary(entries: Sequence[Entry]) -> list[str]:
    """How much there is, and of which networks."""
    pictures = {entry.record.get("image") for entry in entries} - {None, ""}
    lines = [_counted(len(entries), "result"), _counted(len(pictures), "picture")]
    networks = dict.fromkeys(
        " ".join(filter(None, (entry.record.get("model"), entry.record.get("weights"))))
        for entry in entries
    )
    named = [network for network in networks if network]
    if len(named) > 3:
        named = [*named[:2], f"{len(named) - 2} more networks"]
    return lines + named


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _policy(style: str, scripts: Iterable[str]) -> str:
    """A content security policy: our own style and scripts, pictures, and nothing else."""
    allowed = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; img-src 'self' file: data:; style-src {_digest(style)}; "
        f"script-src {allowed}; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _part(name: str) -> str:
    from importlib.resources import files

    return (files("hookscope.render") / "templates" / name).read_text("utf-8")
