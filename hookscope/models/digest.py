"""A fingerprint of a network's weights that costs little next to loading them."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn

_COLUMNS = 1024
_ROWS_IN_CACHE = 128


def weights_digest(model: nn.Module) -> str:
    """32 hex digits that change with any weight, name, shape or precision of ``model``.

    Each tensor's bytes are read as a matrix of 64-bit integers, and its rows and its columns are
    added up (modulo 2^64), which runs at the speed of memory: any one changed weight changes the
    sums, and so does a swap of two. For telling models apart, not for security.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name, value in model.state_dict().items():
        if nn.parameter.is_lazy(value):
            digest.update(f"{name} not there before the first forward pass\n".encode())
        elif isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
            _add(digest, _bytes_of(value))
        else:
            digest.update(f"{name} {value!r}\n".encode())
    return digest.hexdigest()


def _bytes_of(value: Tensor) -> Tensor:
    if value.is_quantized:
        value = value.dequantize()
    flat = value.detach().cpu().contiguous().view(-1).view(torch.uint8)
    return flat if flat.storage_offset() % 8 == 0 else flat.clone()


def _add(digest: hashlib.blake2b, flat: Tensor) -> None:
    whole = flat.numel() // (8 * _COLUMNS) * (8 * _COLUMNS)
    digest.update(flat[whole:].numpy().data)
    if not whole:
        return
    columns = torch.zeros(_COLUMNS, dtype=torch.int64)
    for rows in flat[:whole].view(torch.int64).view(-1, _COLUMNS).split(_ROWS_IN_CACHE):
        columns += rows.sum(0)
        digest.update(rows.sum(1).numpy().data)
    digest.update(columns.numpy().data)
