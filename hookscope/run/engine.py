"""How a run is set up on this machine: workers, replicas and batches."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.utils.deterministic
from torch import nn

from hookscope.models.opening import OpenedModel
from hookscope.run.pipeline import Engine, Job
from hookscope.run.replicas import replicas

_BATCH = {"cpu": 4, "cuda": 32, "mps": 8}


def engine_for(
    job: Job,
    opened: OpenedModel,
    pictures: int,
    batch_size: int | None,
    say: Callable[[str], None],
) -> Engine:
    """The engine for ``pictures`` pictures.

    On a CPU one chain a core, with batches small enough that each core gets its share. On an
    accelerator, and with a model that cannot be copied, one network with decoding and writing
    around it.
    """
    kind = opened.device.type
    size = batch_size or opened.batch_size or _BATCH[kind]
    cores = usable_cores()
    only = opened.batch_size
    if kind == "cuda":
        _settle_cuda()
    if opened.kind in ("torchvision", "timm"):
        _channels_last(opened.module)
    if kind != "cpu":
        return Engine(job, [opened.module], size, True, helpers=cores, only=only, say=say)
    if batch_size is None and only is None:
        size = max(1, min(size, math.ceil(pictures / cores)))
    workers = max(1, min(cores, math.ceil(pictures / size)))
    networks = replicas(opened.module, workers)
    staged = len(networks) < workers
    return Engine(job, networks, size, staged, helpers=workers, only=only, say=say)


def _channels_last(module: nn.Module) -> None:
    """The layout that convolutions like, on CPUs too: up to twice as fast, and never slower.

    Not for networks of users, who may call ``.view()`` on what a convolution gave: it refuses.
    """
    for weight in module.parameters():
        if weight.dim() == 4:
            weight.data = weight.data.contiguous(memory_format=torch.channels_last)


def usable_cores() -> int:
    """The cores that this process may use: its share of what the machine or the container gives,
    where torchrun has started several processes here."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        cores = os.cpu_count() or 1
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    share = min(cores, _quota()) / max(1, int(ranks) if ranks.isdecimal() else 1)
    return max(1, round(share))


def _quota(file: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """The cores' worth of time that a Linux container gets."""
    try:
        time, period = file.read_text().split()
    except (OSError, ValueError):
        return math.inf
    return math.inf if time == "max" else int(time) / int(period)


def _settle_cuda() -> None:
    """The same numbers each time, in true float32: for the whole process, which belongs to the
    command line."""
    # Read when cuBLAS makes its first handle; without it, its results may change with the stream.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    warnings.filterwarnings("ignore", message=".*deterministic", category=UserWarning)
