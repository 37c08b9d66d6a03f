"""Which backward pass is running, and when it ends."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd import Variable


def running_backward() -> int:
    """A number that no other backward pass has, -1 outside of any."""
    return torch._C._current_graph_task_id()


def at_end_of_backward(act: Callable[[], None]) -> None:
    """Calls ``act`` when the backward pass that is running ends; only a gradient hook may ask.

    ``DistributedDataParallel`` averages its gradients at that end too, in a callback that it
    queues after the first gradients arrive: so ``act`` lets that one go first.
    """
    queue = Variable._execution_engine.queue_callback
    queue(lambda: queue(act))
