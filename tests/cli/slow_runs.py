"""``hookscope`` in a process of its own that takes its time, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pictures import open_image

from hookscope.cli.app import run

NETS = """
    import os
    import time
    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.first = nn.Conv2d(3, 4, 5, stride=4)
            self.head = nn.Linear(4, 5)

        def forward(self, x):
            if not x.is_meta:
                time.sleep(float(os.environ.get("FORWARD", 0)))
            return self.head(torch.relu(self.first(x)).mean((2, 3)))


    def net():
        time.sleep(float(os.environ.get("BUILD", 0)))
        return Net()
"""
PICTURES = 24


class Command:
    """``hookscope`` in a process of its own, that takes its time."""

    def __init__(self, nets: Path, photos: Path, out: Path) -> None:
        self.photos, self.out = photos, out
        self.model = f"{nets}:net"

    def arguments(self, name: str, *flags: str) -> list[str]:
        return [name, str(self.photos), "-m", self.model, "-o", str(self.out), *flags]

    def start(
        self, name: str, *flags: str, forward: float = 0.0, build: float = 0.0
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "hookscope", *self.arguments(name, *flags)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "FORWARD": str(forward), "BUILD": str(build)},
            # A job in the background hands an ignored Ctrl-C on to all that it starts.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )

    def here(self, capsys: Any, name: str, *flags: str) -> tuple[int, list[dict[str, Any]]]:
        """The same in this process, quickly: exit code and records."""
        capsys.readouterr()
        code = run(self.arguments(name, *flags, "--json"))
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


GRADCAM = ("gradcam", "-l", "first", "--class", "1")
CAPTURE = ("capture", "-l", "first", "--save", "npy")
POOL = ("capture", "-l", "first", "--pool", "mean")


def read(process: subprocess.Popen[str], lines: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline().rstrip("\n") for _ in range(lines)]


def end(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Exit code, what is left to read, and stderr, all of which is little."""
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout as out, process.stderr as err:
        said = out.read().splitlines(), err.read()
    return process.wait(timeout=60), *said


def whole_files(out: Path) -> list[str]:
    """What a user sees in the folder, each file read to its end."""
    names = []
    for path in sorted(out.iterdir()) if out.exists() else ():
        if path.suffix == ".png":
            open_image(path)
        elif path.suffix == ".npy":
            np.load(path)
        elif path.suffix == ".jsonl":
            for line in path.read_text().splitlines():
                json.loads(line)
            continue
        names.append(str(path))
    return names
