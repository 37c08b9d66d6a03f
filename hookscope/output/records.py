"""The records for stdout and the manifest: every field of the contract, in its order."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]

SCHEMA = 1
_OWN_FIELDS: dict[str, tuple[str, ...]] = {
    "capture": (
        *("what", "shape", "dtype", "layout", "min", "max", "mean", "std"),
        *("zero_fraction", "dead_channels", "nonfinite"),
    ),
    "gradcam": (
        *("method", "class_index", "class_name", "score", "probability"),
        *("shape", "min", "max"),
    ),
}
# A lone surrogate (a byte of a file name that is no text) cannot be written as UTF-8, and some
# readers take these three separators for line ends.
_UNSAFE = re.compile("[\ud800-\udfff\u0085\u2028\u2029]")


def capture_record(
    *,
    status: str = "ok",
    image: str | None,
    sample: str | None,
    model: str,
    weights: str | None,
    layer: str,
    call: int | None,
    preprocess: Mapping[str, Any] | None,
    device: str,
    files: Mapping[str, str],
    reason: str | None = None,
    error: str | None = None,
    what: str = "output",
    shape: Sequence[int] | None = None,
    dtype: str | None = None,
    layout: str | None = None,
    min: float | None = None,
    max: float | None = None,
    mean: float | None = None,
    std: float | None = None,
    zero_fraction: float | None = None,
    dead_channels: int | None = None,
    nonfinite: int | None = None,
    **more: Any,
) -> Record:
    """What one picture made of one call of one layer; ``more`` comes last (``row``)."""
    return {
        **_common("capture", status, image, sample, model, weights, layer, call, preprocess),
        "device": device,
        "files": dict(files),
        "reason": reason,
        "error": error,
        "what": what,
        "shape": None if shape is None else list(shape),
        "dtype": dtype,
        "layout": layout,
        "min": min,
        "max": max,
        "mean": mean,
        "std": std,
        "zero_fraction": zero_fraction,
        "dead_channels": dead_channels,
        "nonfinite": nonfinite,
        **more,
    }


def gradcam_record(
    *,
    status: str = "ok",
    image: str,
    sample: str,
    model: str,
    weights: str | None,
    layer: str,
    call: int | None,
    preprocess: Mapping[str, Any] | None,
    device: str,
    files: Mapping[str, str],
    reason: str | None = None,
    error: str | None = None,
    method: str,
    class_index: int | None = None,
    class_name: str | None = None,
    score: float | None = None,
    probability: float | None = None,
    shape: Sequence[int] | None = None,
    min: float | None = None,
    max: float | None = None,
    **more: Any,
) -> Record:
    """One heatmap; ``more`` comes last (``evaluation``)."""
    return {
        **_common("gradcam", status, image, sample, model, weights, layer, call, preprocess),
        "device": device,
        "files": dict(files),
        "reason": reason,
        "error": error,
        "method": method,
        "class_index": class_index,
        "class_name": class_name,
        "score": score,
        "probability": probability,
        "shape": None if shape is None else list(shape),
        "min": min,
        "max": max,
        **more,
    }


def error_record(
    command: str,
    *,
    error: str,
    image: str | None = None,
    sample: str | None = None,
    model: str | None = None,
    weights: str | None = None,
    layer: str | None = None,
    call: int | None = None,
    preprocess: Mapping[str, Any] | None = None,
    device: str | None = None,
    reason: str | None = None,
    **known: Any,
) -> Record:
    """A picture that could not be read or written, or a layer that never ran.

    It has all fields of the command's records; ``known`` fills some of its own ones (``method``).
    """
    return {
        **_common(command, "error", image, sample, model, weights, layer, call, preprocess),
        "device": device,
        "files": {},
        "reason": reason,
        "error": error,
        **dict.fromkeys(_OWN_FIELDS[command]),
        **known,
    }


def shows_nothing(record: Record) -> bool:
    """Whether a record is of a degenerate map; a skipped one too, which does not say so itself."""
    if record["status"] != "skipped" or record["command"] != "gradcam":
        return bool(record["status"] == "degenerate")
    low, high = record["min"], record["max"]  # None: not finite
    if record["class_index"] is None or low is None or high is None:
        return True
    return bool(high - low <= 1e-6 * max(abs(low), abs(high)))


def dumps(record: Mapping[str, Any], *, ascii: bool = False) -> str:
    """One line of JSON: numbers that are not finite are null, letters of any script stay."""
    try:
        text = json.dumps(record, ensure_ascii=ascii, allow_nan=False)
    except (ValueError, TypeError):
        text = json.dumps(_plain(record), ensure_ascii=ascii, allow_nan=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _common(
    command: str,
    status: str,
    image: str | None,
    sample: str | None,
    model: str | None,
    weights: str | None,
    layer: str | None,
    call: int | None,
    preprocess: Mapping[str, Any] | None,
) -> Record:
    return {
        "schema": SCHEMA,
        "command": command,
        "status": status,
        "image": image,
        "sample": sample,
        "model": model,
        "weights": weights,
        "layer": layer,
        "call": call,
        "preprocess": None if preprocess is None else dict(preprocess),
    }


def _plain(value: Any) -> Any:
    """``value`` in JSON's own types, without NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):  # a number of NumPy's or torch's
        return _plain(value.item())
    return value
