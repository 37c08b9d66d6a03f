from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookscope.render.encode import save_picture, save_png

RNG = np.random.default_rng(3)


def palette_picture(levels: np.ndarray) -> Image.Image:
    picture = Image.fromarray(levels.astype(np.uint8))
    picture.putpalette(RNG.integers(0, 256, 768, dtype=np.uint8).tobytes())
    return picture


def pictures() -> dict[str, Image.Image]:
    noise = RNG.integers(0, 256, (37, 53, 3), dtype=np.uint8)
    ramp = np.add.outer(np.arange(900), np.arange(1300)).astype(np.uint8)
    enlarged = np.kron(RNG.integers(0, 256, (20, 30)), np.ones((7, 7)))
    alpha = Image.fromarray(RNG.integers(0, 256, (5, 6, 4), dtype=np.uint8))
    transparent = palette_picture(np.arange(12).reshape(3, 4))
    transparent.info["transparency"] = 3
    return {
        "noise": Image.fromarray(noise),
        "one pixel": Image.new("RGB", (1, 1), (1, 2, 3)),
        "one row": Image.fromarray(noise[:1]),
        "one column": Image.fromarray(np.ascontiguousarray(noise[:, :1])),
        "several bands": Image.fromarray(np.stack([ramp, ramp[::-1], ramp // 2], axis=2)),
        "grey": Image.fromarray(ramp),
        "palette": palette_picture(RNG.integers(0, 256, (31, 17))),
        "repeated rows": palette_picture(enlarged),
        "all rows alike": palette_picture(np.full((3000, 900), 5)),
        "with alpha": alpha,
        "transparent palette": transparent,
    }


@pytest.mark.parametrize("name", sorted(pictures()))
def test_what_is_written_is_read_back(name: str) -> None:
    picture = pictures()[name]
    buffer = io.BytesIO()
    save_png(picture, buffer, {"hookscope": '{"a": 1}', "Title": "café 漢字 \N{CAT}"})
    buffer.seek(0)
    Image.open(buffer).verify()  # Pillow's check of every chunk
    buffer.seek(0)
    back = Image.open(buffer)
    assert back.format == "PNG"
    # Known before any pixel is decoded: --skip-existing reads thousands.
    assert back.info["hookscope"] == '{"a": 1}'
    assert back.info["Title"] == "café 漢字 \N{CAT}"
    assert back.mode == picture.mode
    assert back.tobytes() == picture.tobytes()
    assert back.convert("RGBA").tobytes() == picture.convert("RGBA").tobytes()


def test_files_are_no_larger_than_pillows_fast_ones(chelsea: Path) -> None:
    def sizes(picture: Image.Image) -> tuple[int, int]:
        ours, theirs = io.BytesIO(), io.BytesIO()
        save_png(picture, ours)
        picture.save(theirs, "PNG", compress_level=1, compress_type=3)
        return ours.tell(), theirs.tell()

    ours, theirs = sizes(Image.open(chelsea).convert("RGB"))
    assert ours < 1.1 * theirs
    ours, theirs = sizes(pictures()["repeated rows"])
    assert ours < 0.5 * theirs


def test_a_path_a_file_and_a_keyword_that_is_none(tmp_path: Path) -> None:
    picture = Image.new("RGB", (4, 4))
    save_png(picture, tmp_path / "a.png")
    with (tmp_path / "b.png").open("wb") as file:
        save_png(picture, file)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    with pytest.raises(ValueError, match="keyword"):
        save_png(picture, io.BytesIO(), {"": "x"})


def test_jpeg_and_webp_come_close_and_jpeg_keeps_the_text(chelsea: Path) -> None:
    picture = Image.open(chelsea).convert("RGB")
    for kind, format in (("jpg", "JPEG"), ("webp", "WEBP")):
        buffer = io.BytesIO()
        save_picture(picture, buffer, kind, {"hookscope": '{"b": "é"}'})  # type: ignore[arg-type]
        back = Image.open(buffer)
        assert back.format == format
        difference = np.asarray(back).astype(int) - np.asarray(picture)
        assert np.abs(difference).mean() < 4
        if kind == "jpg":
            assert back.info["comment"] == '{"b": "é"}'.encode()
    save_picture(palette_picture(np.arange(9).reshape(3, 3)), io.BytesIO(), "jpg")
