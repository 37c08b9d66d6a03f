"""Which device a network runs on."""

from __future__ import annotations

import os

import torch

from hookscope.errors import UsageError


def pick_device(text: str = "auto") -> torch.device:
    """The device for ``auto`` (CUDA, then MPS, then CPU), ``cpu``, ``cuda``, ``cuda:N``, ``mps``.

    Under torchrun, ``auto`` and ``cuda`` take the GPU of the process's ``LOCAL_RANK``.
    Raises ``UsageError`` for what is not there.
    """
    name = text.strip().lower()
    if name == "auto":
        if torch.cuda.is_available():
            return _own_gpu()
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and (kind != "cuda" or not index.isdecimal())):
        raise UsageError(f"--device {text!r} is unknown", "It is auto, cpu, cuda, cuda:N or mps.")
    if kind == "mps" and not torch.backends.mps.is_available():
        raise UsageError(f"--device {text}: this machine has no MPS", "Take --device auto.")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count <= int(index or 0):
            have = f"the GPUs 0 to {count - 1}" if count else "no GPU that torch can use"
            raise UsageError(f"--device {text}: this machine has {have}", "Take --device auto.")
        return torch.device("cuda", int(index)) if index else _own_gpu()
    return torch.device(kind)


def _own_gpu() -> torch.device:
    rank = os.environ.get("LOCAL_RANK", "0")
    return torch.device("cuda", int(rank) % torch.cuda.device_count() if rank.isdecimal() else 0)
