"""From the flags of a command line to what the engine takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookscope.cli.options import ModelFlags, OutputFlags, PreprocessingFlags
from hookscope.errors import UsageError

if TYPE_CHECKING:
    from hookscope.cli.running import Share
    from hookscope.models.preprocess import Preprocessing


def model_arguments(flags: ModelFlags) -> dict[str, Any]:
    """The keywords of ``open_model`` and ``open_structure``."""
    from hookscope.models.spec import parse_model_arg

    return {
        "weights": flags.weights,
        "checkpoint": flags.checkpoint,
        "checkpoint_key": flags.checkpoint_key,
        "num_classes": flags.num_classes,
        "model_args": dict(parse_model_arg(text) for text in flags.model_arg or ()),
        "allow_missing": flags.allow_missing,
        "unsafe_load": flags.unsafe_load,
        "labels": flags.labels,
        "device": flags.device,
        "seed": flags.seed,
        "offline": flags.offline,
    }


def preprocessing_of(flags: PreprocessingFlags, default: Preprocessing) -> Preprocessing:
    """``default`` with whatever the flags change in it."""
    from hookscope.models.preprocess import parse_numbers, parse_size

    changes: dict[str, Any] = {}
    for name, parse in (
        ("resize", parse_size),
        ("crop", parse_size),
        ("mean", parse_numbers),
        ("std", parse_numbers),
    ):
        text = getattr(flags, name)
        if text is not None:
            changes[name] = parse(text)
    if flags.interpolation is not None:
        changes["interpolation"] = flags.interpolation
    return default.override(**changes) if changes else default


def store_arguments(flags: OutputFlags, share: Share) -> dict[str, Any]:
    """The keywords of ``Store``. A rank that torchrun has restarted goes on where it was."""
    skips = flags.skip_existing or share.restarted
    policy = {
        (False, False): "replace",
        (True, False): "skip",
        (False, True): "no-clobber",
        (True, True): "skip-no-clobber",
    }[skips, flags.no_clobber]
    return {
        "policy": policy,
        "force": flags.force,
        "dry_run": flags.dry_run,
        "shard": share.shard,
    }


def input_size_of(text: str) -> tuple[int, int]:
    """``--input-size``: HxW, or N for a square."""
    from hookscope.models.preprocess import parse_size

    size = parse_size(text)
    if size is None:
        raise UsageError("--input-size takes HxW, or N for a square")
    return (size, size) if isinstance(size, int) else size
