"""A context around a module's forward, for what a pair of hooks cannot close on every exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn


class Around:
    """Puts ``call(module, forward, *inputs)`` in the place of ``module.forward`` until ``remove``.

    Several may lie around one module and go in any order. What is placed is no hook, but other
    hooks on the module fire as before.
    """

    def __init__(self, module: nn.Module, call: Callable[..., Any]) -> None:
        self._module = module
        self._before = module.__dict__.get("forward")
        self._forward = forward = module.forward
        self._active = True

        def around(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return forward(*args, **kwargs)
            return call(module, forward, *args, **kwargs)

        module.__dict__["forward"] = self._around = around

    def remove(self) -> None:
        self._active = False
        if self._module.__dict__.get("forward") is self._around:
            if self._before is None:
                del self._module.__dict__["forward"]
            else:
                self._module.__dict__["forward"] = self._before
