"""From the text of a MODEL argument to the source of a network."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hookscope.errors import ModelError, UsageError
from hookscope.models.source import ModelSource


def resolve(spec: str, model_args: Mapping[str, Any] | None = None) -> ModelSource:
    """The source that ``spec`` names: see the contract's ``--model``.

    ``model_args`` go to the constructor as keywords. Raises ``ModelError`` or ``UsageError``.
    """
    arguments = dict(model_args or {})
    if not spec.strip():
        raise UsageError("the model's name is empty")
    if spec.startswith("timm:"):
        from hookscope.models.timm_source import TimmSource

        return TimmSource.named(spec.removeprefix("timm:"), arguments)
    if ":" in spec or spec.endswith(".py"):
        from hookscope.models.factory import FactorySource

        return FactorySource.located(spec, arguments)
    path = Path(spec)
    if path.is_dir():
        raise ModelError(
            f"--model {spec} is a folder", "Name the file and what makes the model in it."
        )
    if path.is_file():
        from hookscope.models.archive import ArchiveSource

        return ArchiveSource.opened(path, arguments)
    if path.parent != Path() or path.suffix in (".pt2", ".pt", ".pth", ".zip"):
        raise ModelError(f"there is no file {spec}")
    from hookscope.models.torchvision_source import TorchvisionSource

    return TorchvisionSource.named(spec, arguments)


def parse_model_arg(text: str) -> tuple[str, Any]:
    """``KEY=VALUE`` of ``--model-arg``: the value as JSON where it is JSON, else as text."""
    key, sign, value = text.partition("=")
    if not sign or not key.isidentifier():
        raise UsageError(
            f"--model-arg {text!r} is not KEY=VALUE", "For example: --model-arg image_size=384"
        )
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
