"""Feeding a network in the engine: its device, its precision, and its failures in words."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from hookscope.errors import HookscopeError, PictureError
from hookscope.hooks.handles import Handles
from hookscope.layers.modules import unwrap
from hookscope.run.clock import Clock

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Stopped(BaseException):
    """The run is over: what a network was about to compute is not wanted any more.

    No ``Exception``, so that nothing on its way takes it for a failure of the network.
    """


def on_device(tensors: Sequence[Tensor], device: torch.device) -> Tensor:
    """One batch (N x ...) on ``device``; to a GPU through pinned memory, without waiting."""
    if device.type != "cuda":
        return torch.stack(list(tensors)).to(device)
    first = tensors[0]
    pinned = torch.empty((len(tensors), *first.shape), dtype=first.dtype, pin_memory=True)
    return torch.stack(list(tensors), out=pinned).to(device, non_blocking=True)


@contextmanager
def running(precision: str, x: Tensor) -> Iterator[None]:
    """A block that runs the network on ``x`` without gradients.

    Whatever the network raises about its input becomes a ``PictureError``, except for a lack of
    memory, which the pipeline answers with smaller batches.
    """
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        if precision in _DTYPES:
            stack.enter_context(torch.autocast(x.device.type, dtype=_DTYPES[precision]))
        with failures_in_words(x):
            yield


@contextmanager
def failures_in_words(x: Tensor) -> Iterator[None]:
    """Turns what a network raises while it runs on ``x`` into a ``PictureError``."""
    try:
        yield
    except HookscopeError:
        raise
    except Exception as error:
        if out_of_memory(error):
            raise
        size = "x".join(str(side) for side in x.shape[1:])
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise PictureError(
            f"the model failed on an input of {size}: {reason}",
            "--resize and --crop choose another input; --debug shows the traceback.",
        ) from error


def out_of_memory(error: Exception) -> bool:
    """Whether a smaller batch might go through."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if not isinstance(error, RuntimeError):
        return False
    # The CPU's allocator, MPS, and CUDA's libraries have no class of their own for it.
    text = str(error)
    return any(
        sign in text
        for sign in ("can't allocate memory", "MPS backend out of memory", "_STATUS_ALLOC_FAILED")
    )


@contextmanager
def watched(network: Any, clock: Clock, stopping: threading.Event) -> Iterator[None]:
    """A block in which the forward passes of ``network`` are timed, and none begins once
    ``stopping`` is set: then ``Stopped`` is raised.

    One heatmap by ScoreCAM takes hundreds of passes: Ctrl-C must not wait for all of them.
    """
    if not isinstance(network, nn.Module):
        yield
        return
    with ExitStack() as stage, Handles() as handles:

        def enter(module: nn.Module, args: Any) -> None:
            if stopping.is_set():
                raise Stopped
            stage.enter_context(clock.stage("forward"))

        def leave(module: nn.Module, args: Any, output: Any) -> None:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # or the time would be that of whoever waits next
            stage.close()

        root = unwrap(network)
        handles.add(root.register_forward_pre_hook(enter))
        handles.add(root.register_forward_hook(leave, always_call=True))
        yield
