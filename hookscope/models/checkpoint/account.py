"""The account of a loaded checkpoint: one line for people, one dict for records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hookscope.models.checkpoint.choice import listed

_NAMED = 3


@dataclass(frozen=True)
class Account:
    """What was done with a checkpoint.

    ``key`` is the path of the state dict in it and ``prefix`` what was stripped from its names
    (both empty where there is none); ``added`` is a prefix that only the model's names have.
    ``loaded`` counts the model's tensors that were set; ``missing`` and ``unexpected`` are names.
    ``classes`` are class names that the checkpoint carries. ``nonfinite`` names the tensors that
    hold NaN or an infinity.
    """

    file: str
    container: str
    key: str
    prefix: str
    added: str
    loaded: int
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    ema: bool
    completed_from: str | None
    num_classes: int | None
    classes: tuple[str, ...] | None
    nonfinite: tuple[str, ...]
    ran_code: bool

    def line(self) -> str:
        """One line: container, key, prefix; loaded, missing, unexpected; what else to know."""
        found = [self.container]
        found.append(f"key {self.key}" if self.key else "no key")
        if self.prefix:
            found.append(f"prefix {self.prefix} stripped")
        if self.added:
            found.append(f"prefix {self.added} added")
        if self.ema:
            lent = f", its buffers from {self.completed_from}" if self.completed_from else ""
            found.append(f"EMA weights taken{lent}")
        if self.ran_code:
            found.append("code in the file was run (--unsafe-load)")
        counts = [
            f"{self.loaded} loaded",
            _counted("missing", self.missing),
            _counted("unexpected", self.unexpected),
        ]
        if self.num_classes is not None:
            named = ", named" if self.classes else ""
            counts.append(f"{self.num_classes} classes{named}")
        if self.nonfinite:
            counts.append(_counted("not finite", self.nonfinite))
        return f"{self.file}: {', '.join(found)}; {', '.join(counts)}"

    def record(self) -> dict[str, Any]:
        """The same as JSON values; names are counted."""
        return {
            "container": self.container,
            "key": self.key or None,
            "prefix": self.prefix or None,
            "added": self.added or None,
            "ema": self.ema,
            "loaded": self.loaded,
            "missing": len(self.missing),
            "unexpected": len(self.unexpected),
            "num_classes": self.num_classes,
            "nonfinite": len(self.nonfinite),
        }


def _counted(what: str, names: tuple[str, ...]) -> str:
    return f"{len(names)} {what} ({listed(names, _NAMED)})" if names else f"0 {what}"
