"""A model's modules by the names its author gave them, whatever a wrapper put in front."""

from __future__ import annotations

from torch import nn


def unwrap(model: nn.Module) -> nn.Module:
    """The model inside ``DataParallel``, ``DistributedDataParallel`` and ``torch.compile``."""
    while True:
        inner = model
        if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
            inner = model.module
        elif type(model).__name__ == "OptimizedModule":
            inner = model._orig_mod  # type: ignore[assignment]
        if inner is model:
            return model
        model = inner


def named_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Dotted name -> module in ``named_modules`` order, without the root, wrappers unwrapped.

    A compiled part inside the model (``layer1._orig_mod.conv``) has its plain name too. A module
    that hangs in the model twice has the first of its names.
    """
    layers: dict[str, nn.Module] = {}
    for name, module in unwrap(model).named_modules():
        plain = ".".join(part for part in name.split(".") if part != "_orig_mod")
        if plain:
            layers[plain] = module
    return layers


def other_names(model: nn.Module) -> dict[str, str]:
    """Further names of modules that hang in the model more than once -> the name of theirs that
    ``named_layers`` has."""
    first = {module: name for name, module in named_layers(model).items()}
    others: dict[str, str] = {}
    for name, module in unwrap(model).named_modules(remove_duplicate=False):
        plain = ".".join(part for part in name.split(".") if part != "_orig_mod")
        if plain and first.get(module, plain) != plain:
            others[plain] = first[module]
    return others


def class_name(module: nn.Module) -> str:
    """The module's class; for a part of an exported program, the class that it was made from."""
    exported = getattr(module, "type_name", None)
    if callable(exported) and type(module).__module__.startswith("torch.export"):
        original = exported()
        if isinstance(original, str):
            return original.rpartition(".")[2]
    return type(module).__name__
