"""Model and tensor in, heatmaps out; the Python API and the engine call the same code.

from hookscope.gradcam import explain, gradcam, Heatmap
"""

from __future__ import annotations

import sys
from types import ModuleType

from torch import Tensor

from hookscope.gradcam.explaining import explain, gradcam
from hookscope.gradcam.heatmap import Heatmap

__all__ = ["Heatmap", "explain", "gradcam"]


class _CallableRoom(ModuleType):
    # `from hookscope import gradcam` means the function, but importing this package puts it under
    # that very name into `hookscope`; so the package can be called too.
    def __call__(self, *args: object, **kwargs: object) -> Tensor:
        return gradcam(*args, **kwargs)  # type: ignore[arg-type]


sys.modules[__name__].__class__ = _CallableRoom
