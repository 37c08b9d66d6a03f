from __future__ import annotations

import io
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image

from hookscope.render import note, plots
from hookscope.render.grid import feature_grid
from hookscope.render.plots import matrix_plot, plot, show_feature_maps, vector_plot

RNG = np.random.default_rng(9)


def drawn(values: object, **options: object) -> object:
    """The figure behind a plot."""
    kept: list[object] = []
    picture = Image.new("RGB", (1, 1))
    with mock.patch.object(plots, "rasterise", lambda figure: kept.append(figure) or picture):
        plot(values, **options)  # type: ignore[arg-type]
    return kept[0]


def test_a_vector_is_sorted_and_its_largest_entries_are_named() -> None:
    values = RNG.normal(size=1000)
    values[[17, 400]] = 9.0, 8.5
    figure = drawn(torch.tensor(values), names=lambda index: f"class {index}", title="logits")
    curve, bars = figure.axes
    heights = curve.lines[0].get_ydata()
    np.testing.assert_allclose(heights, np.sort(values)[::-1])
    labels = [label.get_text() for label in bars.get_yticklabels()]
    assert labels[:2] == ["17  class 17", "400  class 400"]
    assert len(labels) == 10
    widths = [bar.get_width() for bar in bars.patches]
    np.testing.assert_allclose(widths, np.sort(values)[::-1][:10])
    assert [text.get_text() for text in figure.texts] == ["logits"]


def test_signed_vectors_rank_by_magnitude() -> None:
    figure = drawn(np.array([0.1, -5.0, 3.0]), diverging=True, names=["a", "b"])
    labels = [label.get_text() for label in figure.axes[1].get_yticklabels()]
    assert labels == ["1  b", "2", "0  a"]


def test_what_is_not_finite_is_counted() -> None:
    figure = drawn(np.array([1.0, np.nan, np.inf, 2.0]), title="x")
    assert figure.texts[0].get_text() == "x · not finite: 2"
    assert [bar.get_width() for bar in figure.axes[1].patches] == [2.0, 1.0]


def test_a_matrix_keeps_its_numbers_and_its_axes() -> None:
    values = RNG.normal(size=(20, 30))
    figure = drawn(values, diverging=True)
    (shown,) = figure.axes[0].images
    np.testing.assert_array_equal(shown.get_array(), values)
    largest = np.abs(values).max()
    assert shown.get_clim() == (-largest, largest)
    folded = drawn(RNG.normal(size=(2, 3, 4, 5)))
    assert folded.axes[0].images[0].get_array().shape == (24, 5)
    assert "2 × 3 × 4" in folded.axes[0].get_ylabel()


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(1000),
        np.full(3, np.nan),
        np.float32(3.0),
        np.array([1]),
        -np.ones(50),
        np.full((3, 3), np.nan),
        np.zeros((1, 1)),
        np.zeros((400, 2)),
        RNG.normal(size=(3, 3)) * 1e-30,
    ],
    ids=lambda values: f"{np.shape(values)}-{np.ravel(values)[0]:.0e}",
)
def test_odd_tensors_are_drawn_without_a_warning(values: np.ndarray) -> None:
    picture = plot(values, title="$x_y 漢字\n" * 50)
    assert picture.mode == "RGB"
    assert picture.width == 1000
    assert len(np.unique(np.asarray(picture))) > 10


@pytest.mark.parametrize("shape", [(0,), (0, 4), (2, 0, 3, 3)])
@pytest.mark.parametrize("title", [None, "net", "layer with a long name " * 20])
def test_a_tensor_without_elements_is_a_note(
    shape: tuple[int, ...], title: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    original = note.write_note

    def write(picture: Image.Image, text: str) -> None:
        written.append(text)
        original(picture, text)

    monkeypatch.setattr(note, "write_note", write)
    picture = plot(torch.empty(shape), title=title)
    assert picture.mode == "RGB"
    pixels = np.asarray(picture)
    assert (pixels[-1] == (24, 24, 32)).all()  # a banner with letters, no stripes
    assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 10
    (text,) = written
    assert text.endswith("empty tensor " + "x".join(map(str, shape)))
    assert title is None or text.startswith(title[:5])


def test_a_sparse_tensor_is_drawn_as_the_dense_one() -> None:
    values = torch.eye(5)
    assert plot(values.to_sparse()).tobytes() == plot(values).tobytes()


def test_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        vector_plot(np.zeros(0))
    with pytest.raises(ValueError, match="shape"):
        matrix_plot(np.zeros((0, 3)))


def test_plots_from_several_threads_are_those_of_one() -> None:
    values = [RNG.normal(size=60) for _ in range(3)]
    alone = [plot(one).tobytes() for one in values]
    together: dict[int, bytes] = {}

    def work(index: int) -> None:
        together[index] = plot(values[index]).tobytes()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(3)] == alone


def test_show_feature_maps_is_the_grid(tmp_path: Path) -> None:
    maps = torch.rand(6, 9, 9)
    figure = show_feature_maps(maps, title="layer1", cols=2, save_path=tmp_path / "maps.png")
    grid = feature_grid(maps, header="layer1", cols=2)
    saved = Image.open(tmp_path / "maps.png")
    assert saved.tobytes() == grid.tobytes()
    shown = Image.open(io.BytesIO(figure._repr_png_()))
    assert shown.tobytes() == grid.tobytes()
    buffer = io.BytesIO()
    figure.savefig(buffer)
    pixels = np.asarray(Image.open(buffer).convert("RGB"))
    np.testing.assert_array_equal(pixels, np.asarray(grid.convert("RGB")))
    show_feature_maps(maps, save_path=tmp_path / "maps.pdf")
    for name in ("maps.png", "maps.svg"):
        show_feature_maps(maps, save_path=tmp_path / "new" / name / name)
        assert (tmp_path / "new" / name / name).is_file()
    assert (tmp_path / "maps.pdf").read_bytes().startswith(b"%PDF")


def test_show_feature_maps_belongs_to_pyplot_only_where_pyplot_is_in_use() -> None:
    code = """
import sys
import numpy as np
from hookscope import show_feature_maps
show_feature_maps(np.eye(4)[None])
assert "matplotlib.pyplot" not in sys.modules
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
figure = show_feature_maps(np.eye(4)[None])
assert plt.gcf() is figure
"""
    subprocess.run([sys.executable, "-c", code], check=True)
