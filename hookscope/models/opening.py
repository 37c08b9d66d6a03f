"""From what the user typed to a network that is ready to run, and what is known about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from hookscope.errors import ModelError, UsageError
from hookscope.models.device import pick_device
from hookscope.models.digest import weights_digest
from hookscope.models.labels import Labels, read_labels
from hookscope.models.offline import no_network
from hookscope.models.preprocess import Preprocessing
from hookscope.models.source import ModelSource, Trained
from hookscope.models.spec import resolve
from hookscope.models.structure import without_initialisation

if TYPE_CHECKING:
    from hookscope.models.checkpoint.account import Account

__all__ = ["OpenedModel", "load_model", "open_model", "open_structure", "pick_device"]


@dataclass(frozen=True)
class OpenedModel:
    """A network in eval mode on its device.

    ``name`` is the source's; ``file_name`` has the checkpoint's stem behind it, for file names.
    ``weights``: an entry's name, ``none``, a checkpoint's file name, or ``None`` where a factory
    or an archive brought its own. ``digest`` tells weights apart (empty where not wanted).
    ``batch_size`` is the only one the network takes, ``None`` where any will do.
    """

    module: nn.Module
    name: str
    file_name: str
    kind: str
    weights: str | None
    labels: Labels
    preprocessing: Preprocessing
    device: torch.device
    digest: str = ""
    account: Account | None = None
    batch_size: int | None = None


def open_model(
    spec: str = "resnet18",
    *,
    weights: str | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_key: str | None = None,
    num_classes: int | None = None,
    model_args: Mapping[str, Any] | None = None,
    allow_missing: bool = False,
    unsafe_load: bool = False,
    labels: str | Path | None = None,
    device: str = "auto",
    seed: int = 0,
    offline: bool = False,
    want_digest: bool = True,
) -> OpenedModel:
    """The network that the flags of the same names describe, with its weights.

    Raises ``ModelError``, ``WeightsError``, ``CheckpointError`` or ``UsageError``. The random
    state is left as it was. Without ``want_digest`` the digest is empty.
    """
    chosen = pick_device(device)
    names = read_labels(labels) if labels is not None else None
    with _guarded(offline, "hookscope was told to stay --offline"):
        source = _source(spec, model_args, num_classes, weights, checkpoint)
        account: Account | None = None
        with _seeded(seed):
            if checkpoint is not None:
                trained, account = _from_checkpoint(
                    source,
                    checkpoint,
                    checkpoint_key,
                    num_classes,
                    allow_missing,
                    unsafe_load,
                    seed,
                )
            elif _is_none(weights):
                trained = Trained(source.untrained(num_classes=num_classes), "none")
            else:
                trained = source.pretrained(weights, offline=offline, num_classes=num_classes)
    digest = weights_digest(trained.module) if want_digest else ""
    return _opened(source, trained, chosen, checkpoint, names, account, digest)


def open_structure(
    spec: str = "resnet18",
    *,
    weights: str | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_key: str | None = None,
    num_classes: int | None = None,
    model_args: Mapping[str, Any] | None = None,
    allow_missing: bool = False,
    unsafe_load: bool = False,
    labels: str | Path | None = None,
    device: str = "cpu",
    seed: int = 0,
    offline: bool = False,
) -> OpenedModel:
    """The same network for its structure: no download, no initialisation, always on the CPU.

    Its parameters hold whatever the memory held, except with a checkpoint, which is read to see
    whether it fits. Do not run it.
    """
    names = read_labels(labels) if labels is not None else None
    account: Account | None = None
    with _guarded(True, "a structure is made without any download"):
        source = _source(spec, model_args, num_classes, weights, checkpoint)
        with _seeded(seed):
            if checkpoint is not None:
                trained, account = _from_checkpoint(
                    source,
                    checkpoint,
                    checkpoint_key,
                    num_classes,
                    allow_missing,
                    unsafe_load,
                    seed,
                )
            elif _is_none(weights):
                with without_initialisation():
                    trained = Trained(source.untrained(num_classes=num_classes), "none")
            else:
                trained = Trained(_structure(source, weights, num_classes), weights)
    return _opened(source, trained, torch.device("cpu"), checkpoint, names, account, "")


def load_model(
    spec: str = "resnet18",
    *,
    weights: str | None = None,
    checkpoint: str | Path | None = None,
    device: str = "cpu",
    **options: Any,
) -> nn.Module:
    """A network ready for hooks: the same as ``hookscope --model spec`` takes, in eval mode.

    ``weights``: ``DEFAULT`` where neither it nor a ``checkpoint`` is given; ``none`` for random.
    ``options`` are those of ``open_model``: ``num_classes``, ``model_args``, ``seed``, ...
    """
    options = {"want_digest": False, **options}
    return open_model(spec, weights=weights, checkpoint=checkpoint, device=device, **options).module


def _source(
    spec: str,
    model_args: Mapping[str, Any] | None,
    num_classes: int | None,
    weights: str | None,
    checkpoint: str | Path | None,
) -> ModelSource:
    if checkpoint is not None and weights is not None and not _is_none(weights):
        raise UsageError(
            f"--weights {weights} and --checkpoint exclude each other",
            "The checkpoint's weights would replace the others: leave --weights out.",
        )
    if num_classes is not None and num_classes < 1:
        raise UsageError(f"--num-classes {num_classes} is not a number of classes")
    source = resolve(spec, model_args)
    if num_classes is not None and not source.takes("num_classes"):
        raise UsageError(
            f"--num-classes: {source.name} has no argument num_classes",
            "An argument of another name is given by --model-arg KEY=VALUE.",
        )
    return source


def _from_checkpoint(
    source: ModelSource,
    checkpoint: str | Path,
    key: str | None,
    num_classes: int | None,
    allow_missing: bool,
    unsafe_load: bool,
    seed: int,
) -> tuple[Trained, Account]:
    from hookscope.models.checkpoint.loading import load_checkpoint

    module, account = load_checkpoint(
        Path(checkpoint),
        source,
        key=key,
        num_classes=num_classes,
        allow_missing=allow_missing,
        unsafe_load=unsafe_load,
        seed=seed,
    )
    return Trained(module, Path(checkpoint).name, account.classes or ()), account


def _structure(source: ModelSource, weights: str | None, num_classes: int | None) -> nn.Module:
    with ExitStack() as context:
        if source.kind == "factory" and "torchvision" in sys.modules:
            from hookscope.models.handover import weights_from

            # A factory that asks for torchvision's weights gets its network without them.
            context.enter_context(weights_from(None))
        try:
            with without_initialisation():
                return source.build(num_classes=num_classes, weights=weights)
        except ModelError:
            if source.kind != "factory":
                raise
            # Some constructors compute with their initial values, which were not there.
            return source.build(num_classes=num_classes)


def _opened(
    source: ModelSource,
    trained: Trained,
    device: torch.device,
    checkpoint: str | Path | None,
    labels: Labels | None,
    account: Account | None,
    digest: str,
) -> OpenedModel:
    from_file = checkpoint is not None
    module = trained.module.eval()
    entry = None if from_file or _is_none(trained.weights) else trained.weights
    return OpenedModel(
        module=module.to(device),
        name=source.name,
        file_name=f"{source.name}-{Path(str(checkpoint)).stem}" if from_file else source.name,
        kind=source.kind,
        weights=trained.weights,
        labels=labels or Labels(trained.classes),
        preprocessing=source.preprocessing(module, entry),
        device=device,
        digest=digest,
        account=account,
        batch_size=source.batch_size or (1 if _mixes_pictures(module) else None),
    )


def _mixes_pictures(module: nn.Module) -> bool:
    """Whether the pictures of a batch change each other's results, in eval mode too."""
    return any(
        isinstance(part, _BatchNorm) and part.running_mean is None for part in module.modules()
    )


def _is_none(weights: str | None) -> bool:
    return weights is not None and weights.strip().lower() == "none"


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=gpus):
        torch.manual_seed(seed)
        yield


@contextmanager
def _guarded(offline: bool, reason: str) -> Iterator[None]:
    with ExitStack() as context:
        if offline:
            context.enter_context(no_network(reason))
        yield
