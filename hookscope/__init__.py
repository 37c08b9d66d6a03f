"""See inside a PyTorch vision model: its layers, its feature maps, and what it looks at.

The public names are loaded when they are first used, so that ``import hookscope`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from hookscope.errors import HookscopeError, LayerNotFoundError

if TYPE_CHECKING:
    from hookscope.gradcam import gradcam
    from hookscope.hooks.activations import ActivationCapture
    from hookscope.hooks.gradients import GradientCapture
    from hookscope.layers.listing import list_layers
    from hookscope.models.opening import load_model
    from hookscope.render.grid import feature_grid
    from hookscope.render.plots import show_feature_maps

__version__ = "0.1.0"

__all__ = [
    "ActivationCapture",
    "GradientCapture",
    "HookscopeError",
    "LayerNotFoundError",
    "__version__",
    "feature_grid",
    "gradcam",
    "list_layers",
    "load_model",
    "show_feature_maps",
]

_HOMES = {
    "ActivationCapture": "hookscope.hooks.activations",
    "GradientCapture": "hookscope.hooks.gradients",
    "feature_grid": "hookscope.render.grid",
    "gradcam": "hookscope.gradcam",
    "list_layers": "hookscope.layers.listing",
    "load_model": "hookscope.models.opening",
    "show_feature_maps": "hookscope.render.plots",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hookscope' has no attribute {name!r}")
    # Stored under its name, so that `hookscope.gradcam` stays the function even though a
    # submodule of that name sets itself as an attribute while it is imported.
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
