"""Networks by their timm names, with the weights that timm finds in its caches or fetches."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import getproxies

from torch import nn

from hookscope.errors import ModelError, WeightsError, did_you_mean
from hookscope.layers.signature import input_channels
from hookscope.models import presets, weights_cache
from hookscope.models.preprocess import Preprocessing
from hookscope.models.source import Trained

try:
    import timm
    from timm.data import ImageNetInfo, infer_imagenet_subset, resolve_model_data_config
    from timm.models import get_pretrained_cfg, is_model, list_pretrained, split_model_name_tag
except ModuleNotFoundError as error:
    raise ModelError(
        f"timm cannot be imported: {error}", "Install it: pip install 'hookscope[timm]'"
    ) from None

_HUB_FILES = ("model.safetensors", "pytorch_model.bin")
_SECONDS_TO_CONNECT = 5.0


@dataclass(frozen=True)
class TimmSource:
    """One architecture of timm, with a tag of weights or not; a ``ModelSource``."""

    name: str
    arguments: Mapping[str, Any]
    kind: str = "timm"
    batch_size: int | None = None

    @classmethod
    def named(cls, name: str, arguments: Mapping[str, Any]) -> TimmSource:
        architecture, tag = split_model_name_tag(name)
        if not is_model(architecture):
            raise ModelError(
                f"no timm model is called {name!r}", did_you_mean(architecture, timm.list_models())
            )
        source = cls(architecture, arguments)
        if tag:
            source._tagged(tag)
        return cls(name, arguments)

    @property
    def classes(self) -> int | None:
        return self.arguments.get("num_classes", _config(self.name).num_classes)

    def takes(self, argument: str) -> bool:
        return argument == "num_classes"

    def build(
        self,
        *,
        num_classes: int | None = None,
        aux_heads: bool | None = None,
        weights: str | None = None,
    ) -> nn.Module:
        arguments = dict(self.arguments)
        if num_classes is not None:
            arguments.setdefault("num_classes", num_classes)
        return self._create(self._with_weights(weights), pretrained=False, **arguments)

    def untrained(self, *, num_classes: int | None = None) -> nn.Module:
        return self.build(num_classes=num_classes)

    def pretrained(
        self, weights: str | None, *, offline: bool, num_classes: int | None = None
    ) -> Trained:
        name = self._with_weights(weights)
        config = _config(name)
        if not (config.hf_hub_id or config.url or config.file):
            raise WeightsError(
                f"timm has no weights for {name}",
                "Take your own with --checkpoint FILE, or random ones with --weights none.",
            )
        classes = self.arguments.get("num_classes", num_classes)
        if classes not in (None, config.num_classes):
            raise WeightsError(
                f"the weights {config.tag or 'DEFAULT'} of {name} have {config.num_classes} "
                f"classes, not {classes}",
                "Another number goes with --checkpoint FILE or --weights none.",
            )
        file = _cached(config)
        if file is None:
            self._check_network(config, name, offline)
        overlay = {"file": str(file)} if file else None
        try:
            module = self._create(
                name, pretrained=True, pretrained_cfg_overlay=overlay, **self.arguments
            )
        except Exception as error:
            if file:
                raise WeightsError(
                    f"the cached weights {file} cannot be loaded into {name}: {error}"
                ) from None
            raise self._not_had(config, name, f"the download failed: {error}") from None
        return Trained(module, config.tag or "DEFAULT", _class_names(config))

    def class_names(self, weights: str | None) -> tuple[str, ...]:
        config = _config(self._with_weights(weights))
        return () if config is None else _class_names(config)

    def preprocessing(self, model: nn.Module, weights: str | None) -> Preprocessing:
        preset = presets.of_timm(resolve_model_data_config(model), input_channels(model))
        return presets.of_model(model, preset)

    def _with_weights(self, weights: str | None) -> str:
        return self.name if weights in (None, "DEFAULT") else self._tagged(weights)

    def _tagged(self, tag: str | None) -> str:
        architecture = split_model_name_tag(self.name)[0]
        known = [name.partition(".")[2] for name in list_pretrained(f"{architecture}.*")]
        if tag not in known:
            raise WeightsError(
                f"timm has no weights {tag!r} for {architecture}",
                f"It has {', '.join(known)}." if known else "It has none.",
            )
        return f"{architecture}.{tag}"

    def _create(self, name: str, **arguments: Any) -> nn.Module:
        try:
            return timm.create_model(name, **arguments)
        except (TypeError, ValueError, AssertionError) as error:
            given = ", ".join(f"{key}={value!r}" for key, value in self.arguments.items())
            raise ModelError(f"timm's {name}({given}) cannot be built: {error}") from None

    def _check_network(self, config: Any, name: str, offline: bool) -> None:
        if offline:
            raise self._not_had(config, name, "the run is --offline")
        # The hub's client tries for three quarters of a minute where there is no network at all.
        if config.hf_hub_id and not getproxies() and not _reachable(_hub_endpoint()):
            raise self._not_had(config, name, "there is no connection to the hub")

    def _not_had(self, config: Any, name: str, reason: str) -> WeightsError:
        architecture = split_model_name_tag(name)[0]
        cached = [
            other.partition(".")[2]
            for other in list_pretrained(f"{architecture}.*")
            if _cached(_config(other))
        ]
        have = (
            f"In the cache for {architecture}: {', '.join(cached)} (--weights {cached[0]})."
            if cached
            else f"Nothing is in the cache for {architecture}."
        )
        return WeightsError(
            f"the weights {config.tag or 'DEFAULT'} of timm's {architecture} are not in the cache, "
            f"and {reason}",
            f"{have}\nWays out: load a file of your own with --checkpoint FILE, or take random "
            "weights with --weights none.",
        )


def _config(name: str) -> Any:
    return get_pretrained_cfg(name)


def _cached(config: Any) -> Path | None:
    if config.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        names = (config.hf_hub_filename,) if config.hf_hub_filename else _HUB_FILES
        for name in names:
            found = try_to_load_from_cache(config.hf_hub_id, name)
            if isinstance(found, str):
                return Path(found)
    if config.url:
        file = weights_cache.cached_file(config.url)
        return file if file.exists() else None
    return None


def _hub_endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def _reachable(url: str) -> bool:
    place = urlparse(url)
    port = place.port or (80 if place.scheme == "http" else 443)
    try:
        with socket.create_connection((place.hostname or "", port), _SECONDS_TO_CONNECT):
            return True
    except OSError:
        return False


def _class_names(config: Any) -> tuple[str, ...]:
    if config.label_names:
        return tuple(config.label_names)
    subset = infer_imagenet_subset(config.to_dict())
    if subset is None:
        return ()
    descriptions = ImageNetInfo(subset).label_descriptions()
    return tuple(description.partition(",")[0] for description in descriptions)
