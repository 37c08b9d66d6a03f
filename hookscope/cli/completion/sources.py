"""Where completion gets its names: what is not cached is read off libraries and models."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from hookscope.cli.completion.cache import Found, installed, remembered


def has(name: str) -> bool:
    """Whether a library is installed."""
    return installed(name) is not None


def library(name: str) -> dict[str, list[str]]:
    """Model -> its weights, for ``torchvision`` or ``timm``; empty where it is not installed."""
    if not has(name):
        return {}
    find = {"torchvision": _torchvision, "timm": _timm}[name]
    return remembered("models", {"library": name}, [name], find)


def colormaps() -> list[str]:
    """matplotlib's, by name."""
    return remembered("colormaps", {}, ["matplotlib"], _colormaps)


def network(model: str, flags: dict[str, Any]) -> dict[str, Any]:
    """``layers`` (name -> class) and ``classes`` (their names) of the model that a line describes.

    Raises whatever the model's constructor raises.
    """
    question = {"model": model, **{flag: value for flag, value in flags.items() if value}}
    if flags["checkpoint"] or ":" in model or Path(model).exists():
        question["folder"] = os.getcwd()
    packages = ["hookscope", "torch", "torchvision"]
    if model.startswith("timm:"):
        packages.append("timm")
    return remembered("network", question, packages, lambda: _network(model, flags))


def _torchvision() -> Found:
    from torchvision.models import list_models

    from hookscope.models.torchvision_source import TorchvisionSource

    return Found({name: list(TorchvisionSource(name).entries) for name in list_models()})


def _timm() -> Found:
    from timm.models import list_models, list_pretrained

    weights: dict[str, list[str]] = {name: [] for name in list_models()}
    for name in list_pretrained():
        architecture, _, tag = name.partition(".")
        if tag:
            weights.setdefault(architecture, []).append(tag)
    return Found(weights)


def _colormaps() -> Found:
    from matplotlib import colormaps as registered

    return Found(sorted(registered))


def _network(model: str, flags: dict[str, Any]) -> Found:
    before = set(sys.modules)
    with redirect_stdout(sys.stderr):  # what a user's file prints is no completion
        from hookscope.layers.modules import class_name, named_layers
        from hookscope.models.opening import open_structure
        from hookscope.models.spec import parse_model_arg, resolve

        given = {flag: value for flag, value in flags.items() if flag != "model_arg"}
        arguments = dict(parse_model_arg(text) for text in flags["model_arg"] or ())
        opened = open_structure(model, model_args=arguments, **given)
    classes = opened.labels.names  # a checkpoint's own
    theirs = opened.kind in ("torchvision", "timm")
    if theirs and not flags["checkpoint"] and opened.weights != "none":
        classes = resolve(model, arguments).class_names(flags["weights"])
    layers = {name: class_name(layer) for name, layer in named_layers(opened.module).items()}
    files = [*_own_files(set(sys.modules) - before), *filter(None, [flags["checkpoint"]])]
    if Path(model).is_file():
        files.append(model)
    found = {"layers": layers, "classes": list(classes)}
    return Found(found, [os.path.abspath(file) for file in files])


def _own_files(modules: Iterable[str]) -> list[str]:
    """The files of ``modules`` that are the user's: on them depends what their factory makes."""
    from hookscope.models.user_code import is_theirs

    files = (getattr(sys.modules.get(name), "__file__", None) for name in modules)
    return [file for file in files if file and is_theirs(file)]
