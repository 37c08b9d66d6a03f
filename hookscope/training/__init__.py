"""Hooks for a training loop of one's own: each is a context, and its hooks are gone afterwards."""

from __future__ import annotations

from hookscope.training.checking import BadInputError, check_inputs
from hookscope.training.clipping import clip_gradients
from hookscope.training.history import GradientHistory, Verdict
from hookscope.training.monitor import GradientMonitor

__all__ = [
    "BadInputError",
    "GradientHistory",
    "GradientMonitor",
    "Verdict",
    "check_inputs",
    "clip_gradients",
]
