"""A shell's prompt, with ``hookscope`` and half a line on it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

HEAVY = ("torch", "torchvision", "timm", "matplotlib", "numpy")


@dataclass(frozen=True)
class Prompt:
    """A shell's prompt, by the protocol that the shell's own function speaks."""

    cache: Path
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def without_libraries(self, stubs: Path) -> Prompt:
        """The same where an import of anything heavy fails."""
        stubs.mkdir(exist_ok=True)
        for name in HEAVY:
            (stubs / f"{name}.py").write_text("raise ImportError('not while completing')")
        return replace(self, environment={**self.environment, "PYTHONPATH": str(stubs)})

    def bash(self, *words: str, at: int | None = None) -> list[str]:
        """What bash offers for the word ``at`` (the last) of ``words``, cut by bash already."""
        return self._ask(
            _HOOKSCOPE_COMPLETE="complete_bash",
            COMP_WORDS="\n".join(["hookscope", *words]),
            COMP_CWORD=str(at or len(words)),
        )

    def zsh(self, line: str) -> str:
        """The code that zsh evaluates."""
        return "\n".join(
            self._ask(_HOOKSCOPE_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=f"hookscope {line}")
        )

    def fish(self, line: str) -> list[str]:
        return self._ask(
            _HOOKSCOPE_COMPLETE="complete_fish",
            _TYPER_COMPLETE_FISH_ACTION="get-args",
            _TYPER_COMPLETE_ARGS=f"hookscope {line}",
        )

    def _ask(self, **protocol: str) -> list[str]:
        done = self.run(**protocol)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    def run(self, **protocol: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "hookscope"],
            env={
                **os.environ,
                "XDG_CACHE_HOME": str(self.cache),
                **self.environment,
                **protocol,
            },
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
