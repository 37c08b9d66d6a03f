"""Torch's own cache of downloaded weights: what is there, and fetching what is not."""

from __future__ import annotations

import http.client
import os
import re
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

import torch
from torch import Tensor

from hookscope.errors import WeightsError

_SECONDS_OF_SILENCE = 20.0
_HASH_IN_NAME = re.compile(r"-([a-f0-9]*)\.")


def cached_file(url: str) -> Path:
    """Where torchvision keeps, or would keep, the file behind ``url``."""
    return Path(torch.hub.get_dir()) / "checkpoints" / os.path.basename(urlparse(url).path)


def download(url: str) -> Path:
    """The file behind ``url``, fetched into the cache; whole or not at all.

    Raises ``WeightsError`` with the reason alone: the caller knows the ways out.
    """
    target = cached_file(url)
    hash_prefix = _HASH_IN_NAME.search(target.name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _never_waiting_forever():
            torch.hub.download_url_to_file(
                url,
                str(target),
                hash_prefix[1] if hash_prefix else None,
                progress=sys.stderr.isatty(),
            )
    except (OSError, RuntimeError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise WeightsError(f"the download of {url} failed: {reason}") from None
    return target


def read(path: Path) -> Mapping[str, Tensor]:
    """The state dict in a cached file, mapped into memory where its format allows."""
    try:
        with warnings.catch_warnings():
            # About its own storage classes, where a file holds quantised tensors.
            warnings.simplefilter("ignore")
            state_dict = torch.load(
                path, map_location="cpu", weights_only=True, mmap=_can_be_mapped(path)
            )
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise WeightsError(
            f"the cached weights {path} cannot be read: {first}",
            "The file may be damaged: remove it, and it is downloaded again.",
        ) from None
    if not isinstance(state_dict, Mapping):
        raise WeightsError(f"the cached weights {path} hold no state dict")
    return state_dict


def _can_be_mapped(path: Path) -> bool:
    """Files from before torch 1.6 are plain pickles, which cannot be mapped."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


@contextmanager
def _never_waiting_forever() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_SECONDS_OF_SILENCE)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
