"""A model's stand-in: the same modules and code, on other tensors, for trying out safely."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from hookscope.layers.modules import unwrap

# Whole-number buffers below this size keep their values: they are indices and masks, and
# control flow may hang on them.
MOST_VALUES = 1 << 16

_HOOK_TABLES = (
    "_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called",
    "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs", "_backward_hooks",
    "_backward_pre_hooks",
)  # fmt: skip


class Skeleton:
    """A copy of ``model`` whose forward pass leaves no trace in it, and costs no memory.

    ``root`` is the copy, in evaluation mode, wrappers unwrapped, and ``of`` finds the copy of a
    module. Every container and attribute of the modules is copied, every tensor replaced
    (``with_data``: shares its memory; else it is a meta tensor), and the user's hooks are left
    out, so that none of them sees a tensor of ours. Hooks that torch itself places to compute a
    weight (weight norm, spectral norm, pruning, lazy modules) stay.
    """

    def __init__(self, model: nn.Module, *, with_data: bool = False) -> None:
        self._tensor = _sharing if with_data else _shape_of
        self._copies: dict[int, Any] = {}
        # The originals stay alive as long as their ids are keys.
        self._originals: list[Any] = []
        self.root: nn.Module = self._copy(unwrap(model))

    def of(self, module: nn.Module) -> nn.Module | None:
        """The copy of ``module``; None for a TorchScript part, which takes no hooks."""
        copy = self._copies.get(id(module))
        return copy if isinstance(copy, nn.Module) else None

    def _remember(self, value: Any, copy: Any) -> Any:
        self._copies[id(value)] = copy
        self._originals.append(value)
        return copy

    def _copy(self, value: Any) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind in _CONTAINERS and not value:
            return kind()
        if id(value) in self._copies:
            return self._copies[id(value)]
        if isinstance(value, nn.Module):
            return self._module(value)
        if isinstance(value, Tensor):
            return self._remember(value, self._tensor(value))
        if kind in (dict, OrderedDict):
            copy = self._remember(value, kind())
            for key, part in value.items():
                copy[key] = self._copy(part)
            return copy
        if kind is list:
            copy = self._remember(value, [])
            copy.extend(self._copy(part) for part in value)
            return copy
        if kind is set:
            return set(value)
        if kind is tuple:
            return tuple(self._copy(part) for part in value)
        if kind is RemovableHandle:
            return self._handle(value)
        if kind is types.MethodType:
            return types.MethodType(value.__func__, self._copy(value.__self__))
        if kind is functools.partial:
            keywords = {key: self._copy(part) for key, part in value.keywords.items()}
            return functools.partial(
                self._copy(value.func), *[self._copy(part) for part in value.args], **keywords
            )
        return self._object(value)

    def _module(self, module: nn.Module) -> nn.Module:
        if isinstance(module, torch.jit.ScriptModule):
            return module
        if type(module).__name__ == "OptimizedModule":
            # Called, it would compile; its plain module answers for it.
            return self._remember(module, self._copy(module._orig_mod))
        copy = self._remember(module, object.__new__(type(module)))
        state = module.__dict__
        attributes = copy.__dict__
        for name in _HOOK_TABLES:
            attributes[name] = OrderedDict()
            # A module pickled by an older torch lacks the tables of later ones.
            if name in state:
                self._remember(state[name], attributes[name])
        before = state.get("_forward_pre_hooks", {})
        with_kwargs = state.get("_forward_pre_hooks_with_kwargs", {})
        kept = {key: hook for key, hook in before.items() if _computes_a_weight(hook)}
        attributes["_forward_pre_hooks"].update((k, self._copy(h)) for k, h in kept.items())
        attributes["_forward_pre_hooks_with_kwargs"].update(
            (key, flag) for key, flag in with_kwargs.items() if key in kept
        )
        for name, value in state.items():
            if name not in _HOOK_TABLES:
                attributes[name] = self._copy(value)
        attributes["training"] = False
        if isinstance(module, nn.DataParallel):
            attributes["device_ids"] = []
        return copy

    def _handle(self, handle: RemovableHandle) -> RemovableHandle:
        """A handle on the copy's hooks: a lazy module lets go of its hook by itself."""
        table = handle.hooks_dict_ref()
        copies = None if table is None else self._copies.get(id(table))
        copy = RemovableHandle(OrderedDict() if copies is None else copies)
        copy.id = handle.id
        return copy

    def _object(self, value: Any) -> Any:
        """A user's own object in an attribute: its fields may be tensors, modules or a cache."""
        fields = getattr(value, "__dict__", None)
        origin = type(value).__module__.partition(".")[0]
        if not isinstance(fields, dict) or callable(value) or origin in _LEFT_ALONE:
            return value
        try:
            copy = self._remember(value, object.__new__(type(value)))
        except TypeError:
            return value
        copy.__dict__.update({name: self._copy(part) for name, part in fields.items()})
        return copy


_PLAIN = frozenset(
    (int, float, bool, str, bytes, complex, type(None), type, types.FunctionType,
     types.BuiltinFunctionType, torch.dtype, torch.device, torch.Size)
)  # fmt: skip
_CONTAINERS = frozenset((dict, OrderedDict, list, set, tuple))
_LEFT_ALONE = frozenset(("builtins", "torch", "numpy", "logging", "threading", "enum", "weakref"))


def _computes_a_weight(hook: Callable[..., Any]) -> bool:
    owner = getattr(hook, "__func__", type(hook))
    return str(getattr(owner, "__module__", "")).startswith(("torch.nn.utils", "torch.nn.modules"))


def _shape_of(tensor: Tensor) -> Tensor:
    if nn.parameter.is_lazy(tensor):
        return type(tensor)(device="meta", dtype=tensor.dtype)  # type: ignore[call-arg]
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    if whole and not tensor.is_meta and tensor.numel() <= MOST_VALUES:
        return tensor.detach().to("cpu", copy=True)
    bare = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return nn.Parameter(bare, requires_grad=False) if isinstance(tensor, nn.Parameter) else bare


def _sharing(tensor: Tensor) -> Tensor:
    """The same numbers; buffers, which a forward pass may change in place, as a copy."""
    if nn.parameter.is_lazy(tensor):
        return type(tensor)(device=tensor.device, dtype=tensor.dtype)  # type: ignore[call-arg]
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(tensor.detach(), requires_grad=False)
    return tensor.detach().clone()
