"""Colour tables: from the name of a colormap to rows of RGB."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hookscope.errors import UsageError, did_you_mean

# Anchors that a straight line joins, fitted by least squares so that no colour is more than one
# step of 255 away from matplotlib's table of the same name. Importing matplotlib costs a fifth
# of a second at start-up, so the three default colormaps must not need it.
_ANCHORS = {
    "viridis": (
        "440154460b5f471669482072472a7945337f433c844045873c4d8a39568b355d8d31658d2e6c8e2b748e"
        "287a8e25828e23898d208f8c1e978a1e9d8820a58525ab812db27c38b97645bf6f54c56764cb5d75d053"
        "88d5489bd93bafdc2ec3df21d7e218ebe419fde724"
    ),
    "turbo": (
        "30123c3928703f3d9c4352c14666dd4679f2448cfe3c9ffe2fb1f422c3e318d3cf17e1bc21eba936f392"
        "51fa796ffd608bfe4aa3fc3bb6f734c9ee33dbe236ead439f5c43afbb437fea12ffd8b26f8741cf25e13"
        "e84b0bdc3b07ce2d04bd2001a91501930b017a0402"
    ),
    "RdBu_r": "0530602165ab4392c392c5ded0e4f0f7f7f7fddbc7f4a581d6604db1182a66001f",
}


@lru_cache(maxsize=32)
def lut(name: str, levels: int = 256) -> NDArray[np.uint8]:
    """The colours of the colormap ``name`` from lowest to highest: uint8, ``levels`` x 3.

    Any matplotlib colormap; the array is read-only and shared. Raises ``UsageError`` with the
    three closest names where there is no such colormap.
    """
    positions = np.linspace(0.0, 1.0, levels)
    anchors = _ANCHORS.get(name)
    if anchors is None:
        colours = _from_matplotlib(name, positions)
    else:
        table = np.frombuffer(bytes.fromhex(anchors), np.uint8).reshape(-1, 3)
        knots = np.linspace(0.0, 1.0, len(table))
        channels = [np.interp(positions, knots, table[:, channel]) for channel in range(3)]
        colours = np.rint(np.stack(channels, axis=1)).astype(np.uint8)
    colours.flags.writeable = False
    return colours


def _from_matplotlib(name: str, positions: NDArray[np.float64]) -> NDArray[np.uint8]:
    from matplotlib import colormaps

    if name not in colormaps:
        raise UsageError(f"unknown colormap {name!r}", did_you_mean(name, colormaps))
    return np.ascontiguousarray(colormaps[name](positions, bytes=True)[:, :3])
