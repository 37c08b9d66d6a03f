"""Opening pictures in tests."""

from __future__ import annotations

from pathlib import Path

from PIL import Image


def open_image(path: str | Path) -> Image.Image:
    """A picture with its text chunks, its file closed."""
    with Image.open(path) as image:
        image.load()
        return image
