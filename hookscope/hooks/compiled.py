"""Compiled modules run their original code while hooks are in place.

Compiled code is a recording: a hook that is added after it was made does not fire. So, for as long
as a handle made here is held, the compiled parts of a model run uncompiled, and afterwards as they
did before; nothing that was compiled is lost.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

# For each switched module: how many hold it, and what was in its place.
_switched: WeakKeyDictionary[nn.Module, tuple[int, Any]] = WeakKeyDictionary()
_lock = threading.Lock()


class Uncompiled:
    """The compiled parts of ``model`` run as plain modules until ``remove``.

    Covers ``torch.compile(model)``, compiled modules inside a model, and ``module.compile()``.
    Several holders may overlap in any order; the last to let go restores.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parts = [part for part in model.modules() if _is_compiled(part)]
        with _lock:
            for part in self._parts:
                holders, compiled = _switched.get(part, (0, None))
                if holders == 0:
                    compiled = _switch_off(part)
                _switched[part] = (holders + 1, compiled)

    def remove(self) -> None:
        with _lock:
            while self._parts:
                part = self._parts.pop()
                holders, compiled = _switched.pop(part)
                if holders > 1:
                    _switched[part] = (holders - 1, compiled)
                else:
                    _switch_on(part, compiled)


def has_compiled_parts(model: nn.Module) -> bool:
    """Whether anything of ``model`` is compiled, switched off or not."""
    return any(_is_compiled(part) for part in model.modules())


def _is_compiled(module: nn.Module) -> bool:
    if module in _switched or type(module).__name__ == "OptimizedModule":
        return True
    return getattr(module, "_compiled_call_impl", None) is not None


def _switch_off(part: nn.Module) -> Any:
    # Through __dict__, because torch.compile's wrapper passes attributes on to what it wraps.
    attributes = part.__dict__
    if type(part).__name__ == "OptimizedModule":
        compiled = attributes["forward"]
        attributes["forward"] = part._modules["_orig_mod"]
    else:
        compiled = attributes["_compiled_call_impl"]
        attributes["_compiled_call_impl"] = None
    return compiled


def _switch_on(part: nn.Module, compiled: Any) -> None:
    name = "forward" if type(part).__name__ == "OptimizedModule" else "_compiled_call_impl"
    part.__dict__[name] = compiled
