from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hookscope.render.attention import attention_grid, attention_sheet, token_maps
from hookscope.render.figure import write_figure
from hookscope.render.overlay import overlay
from hookscope.render.palette import lut
from hookscope.render.panel import Panel, Scale, shared_limits
from hookscope.render.placement import fit_within
from hookscope.render.sheet import sheet

RNG = np.random.default_rng(5)
BOX = (50.0, 0.0, 350.0, 300.0)


@pytest.fixture
def cat(chelsea: Path) -> Image.Image:
    return Image.open(chelsea).convert("RGB")


def find(page: Image.Image, part: Image.Image) -> list[tuple[int, int]]:
    """Where ``part`` lies in ``page``, pixel for pixel: (left, top) of each place."""
    pixels, wanted = np.asarray(page), np.asarray(part)
    height, width = wanted.shape[:2]
    corners = (pixels[: -height + 1, : -width + 1] == wanted[0, 0]).all(axis=2)
    return [
        (left, top)
        for top, left in np.argwhere(corners).tolist()
        if (pixels[top : top + height, left : left + width] == wanted).all()
    ]


def test_the_sheet_holds_the_original_and_every_overlay_on_one_scale(cat: Image.Image) -> None:
    maps = [RNG.random((7, 7)), RNG.random((7, 7)) * 5]
    panels = [Panel(maps[0], "a", 0.7), Panel(maps[1], "b", 0.2)]
    page = sheet(cat, BOX, panels, title="model · layer")
    limits = min(map(np.min, maps)), max(map(np.max, maps))
    assert shared_limits(panels) == pytest.approx(limits)
    (origin,) = find(page, cat)
    places = [find(page, overlay(cat, one, BOX, limits=limits)) for one in maps]
    assert [len(found) for found in places] == [1, 1]
    # In one row, original first.
    assert origin[0] < places[0][0][0] < places[1][0][0]
    assert origin[1] == places[0][0][1] == places[1][0][1]
    # The bar holds the whole colormap from top to bottom.
    bar = Image.fromarray(np.repeat(lut("turbo", cat.height)[::-1, None], 4, axis=1))
    assert find(page, bar)


def test_large_pictures_are_shrunk_with_their_box_and_tiny_ones_enlarged(cat: Image.Image) -> None:
    heatmap = RNG.random((7, 7))
    large = cat.resize((1804, 1200))
    page = sheet(large, (200.0, 0.0, 1400.0, 1200.0), [Panel(heatmap, "a")])
    small, box = fit_within(large, (200.0, 0.0, 1400.0, 1200.0), 480)
    assert find(page, overlay(small, heatmap, box))
    tiny = cat.resize((8, 6))
    page = sheet(tiny, (1.0, 0.0, 7.0, 6.0), [Panel(heatmap, "a")])
    enlarged = tiny.resize((480, 360), Image.Resampling.NEAREST)
    assert find(page, overlay(enlarged, heatmap, (60.0, 0.0, 420.0, 360.0)))


def test_maps_that_show_nothing_do_not_set_the_scale_and_say_so(cat: Image.Image) -> None:
    heatmap = RNG.random((7, 7))
    panels = [Panel(heatmap, "a"), Panel(np.full((7, 7), 1e6), "b", note="constant")]
    assert shared_limits(panels) == (heatmap.min(), heatmap.max())
    page = sheet(cat, BOX, panels)
    assert find(page, overlay(cat, heatmap, BOX, note="constant"))
    nothing = [Panel(np.full((7, 7), np.nan), "a", note="not finite")]
    assert shared_limits(nothing) == (0.0, 1.0)
    assert find(sheet(cat, BOX, nothing), overlay(cat, heatmap, BOX, note="not finite"))


@pytest.mark.parametrize("count", [1, 4, 5, 16])
def test_many_panels_make_rows(cat: Image.Image, count: int) -> None:
    page = sheet(cat, BOX, [Panel(RNG.random((7, 7)), f"class {k}", 0.1) for k in range(count)])
    assert 900 <= page.width <= 2500


def test_names_and_titles_of_any_length_stay_on_the_page(cat: Image.Image) -> None:
    thin = cat.resize((20, 300))
    panels = [Panel(np.eye(3), name, 1e-9) for name in ("x" * 300, "one two " * 60, "漢字\n$", "")]
    page = np.asarray(sheet(thin, (0, 0, 20, 300), panels, title="t " * 500))
    assert (page[:, :15] == 255).all()
    assert (page[:, -3:] == 255).all()


def test_probabilities_are_written_as_numbers_a_reader_can_use() -> None:
    details = [Panel(np.eye(2), "a", value).details for value in (None, 1.0, 0.7166, 0.0006, 1e-9)]
    assert details == [
        [],
        ["probability 1.000"],
        ["probability 0.717"],
        ["probability 0.001"],
        ["probability < 0.001"],
    ]


@pytest.mark.parametrize("format", ["pdf", "svg"])
def test_the_figure_is_vector_text_around_pixels_and_the_same_each_time(
    cat: Image.Image, format: str
) -> None:
    panels = [Panel(RNG.random((7, 7)), "Egyptian cat $x_1$", 0.7), Panel(np.eye(7), "漢字", 0.2)]

    def written() -> bytes:
        buffer = io.BytesIO()
        write_figure(
            buffer, format, cat, BOX, panels, title="net · layer", text={"hookscope": "{...}"}
        )  # type: ignore[call-overload]
        return buffer.getvalue()

    first = written()
    assert written() == first
    if format == "pdf":
        assert first.startswith(b"%PDF")
        assert b"/CreationDate" not in first
        assert first.count(b"/Subtype /Image") >= 3
        assert b"{...}" in first
    else:
        text = first.decode()
        for words in (
            "original",
            "Egyptian cat $x_1$",
            "probability 0.700",
            "net · layer",
            "{...}",
        ):
            assert words in text
        assert len(re.findall("<image", text)) == 4  # three pictures and the colour bar
        assert "<dc:date>" not in text


def test_attention_from_the_class_token_and_without_one() -> None:
    weights = RNG.random((3, 13, 13))
    maps = token_maps(weights, (3, 4), prefix=1)
    np.testing.assert_array_equal(maps[2, 1, 3], weights[2, 0, 1 + 7])
    windows = RNG.random((2, 12, 12))
    np.testing.assert_allclose(
        token_maps(windows, (3, 4), prefix=0)[1, 2, 0], windows[1, :, 8].mean()
    )
    with pytest.raises(ValueError, match="3·4 keys"):
        token_maps(weights, (3, 4), prefix=2)


def test_attention_pictures(cat: Image.Image) -> None:
    weights = RNG.random((3, 13, 13))
    grid = attention_grid(weights, header="vit")
    assert grid.mode == "P"
    maps = token_maps(weights, (3, 4), prefix=1)
    page = attention_sheet(cat, BOX, maps, title="vit")
    limits = float(maps.min()), float(maps.max())
    for one in maps:
        assert find(page, overlay(cat, one, BOX, limits=limits))


def test_panels_with_scales_of_their_own_stand_in_rows(cat: Image.Image) -> None:
    maps = [RNG.random((7, 7)) * 10**power for power in range(4)]
    scales = [Scale((float(one.min()), float(one.max())), "viridis") for one in maps]
    panels = [
        Panel(one, f"method {k}", lines=("first", "second"), scale=scale)
        for k, (one, scale) in enumerate(zip(maps, scales, strict=True))
    ]
    page = sheet(cat, BOX, panels, per_row=2)
    places = [
        find(page, overlay(cat, one, BOX, cmap="viridis", limits=scale.limits))
        for one, scale in zip(maps, scales, strict=True)
    ]
    assert [len(found) for found in places] == [1] * 4
    (a, b, c, d) = [found[0] for found in places]
    (origin,) = find(page, cat)
    assert origin[1] == a[1] == b[1] < c[1] == d[1]
    assert origin[0] < a[0] == c[0] < b[0] == d[0]
    # Each has its bar, and there is none for all of them.
    bar = Image.fromarray(np.repeat(lut("viridis", cat.width)[None], 4, axis=0))
    assert len({left for left, _ in find(page, bar)}) == 2
    assert page.width == 2 * 20 + 3 * cat.width + 2 * 14
    buffer = io.BytesIO()
    write_figure(buffer, "svg", cat, BOX, panels, per_row=2)
    assert b"second" in buffer.getvalue()


def test_a_difference_leaves_the_picture_where_nothing_differs(cat: Image.Image) -> None:
    difference = np.zeros((7, 7))
    difference[0, 0], difference[6, 6] = -1, 1
    drawn = np.asarray(
        overlay(cat, difference, BOX, cmap="RdBu_r", limits=(-1, 1), diverging=True, alpha=1.0)
    ).astype(int)
    red_less_blue = drawn[..., 0] - drawn[..., 2]
    assert red_less_blue[:30, 55:80].mean() < -60
    assert red_less_blue[270:, 320:345].mean() > 60
    grey = np.asarray(cat.convert("L").convert("RGB")).astype(int)
    middle = abs(drawn[140:160, 190:210] - grey[140:160, 190:210]).mean()
    assert middle < 40 < abs(drawn[:20, 52:72] - grey[:20, 52:72]).mean()
