"""capture --pool: matrices of embeddings, their rows, their records and their index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from embedding_runs import by_hand, hidden, index_of
from safetensors.numpy import load_file

READ: dict[str, Callable[[Path], np.ndarray]] = {
    "npy": lambda path: np.load(path, allow_pickle=False),
    "npz": lambda path: np.load(path, allow_pickle=False)["tensor"],
    "safetensors": lambda path: load_file(path)["tensor"],
    "pt": lambda path: torch.load(path, weights_only=True).numpy(),
}


def test_one_matrix_a_call_in_the_order_of_the_pictures(
    pooled: Any, nets: Path, photos: Path, tmp_path: Path
) -> None:
    ran = pooled()
    out = tmp_path / "out"
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        str(out / f"net_act@{call}_mean.{ending}")
        for call in (1, 2)
        for ending in ("npy", "index.jsonl")
    ]
    outputs = by_hand(nets, photos, "net", "act")
    for call in (1, 2):
        matrix = np.load(out / f"net_act@{call}_mean.npy")
        expected = torch.cat([one.mean((2, 3)) for one in outputs[call - 1 :: 2]])
        assert matrix.dtype == np.float32
        np.testing.assert_allclose(matrix, expected, atol=1e-6)
        index = index_of(out / f"net_act@{call}_mean.index.jsonl")
        assert [line["row"] for line in index] == list(range(11))
        assert [line["image"] for line in index] == [f"../photos/p{n}.png" for n in range(11)]
        assert [line["sample"] for line in index] == [f"p{n}" for n in range(11)]
    assert hidden(out) == []


def test_each_record_has_its_row(pooled: Any, photos: Path, tmp_path: Path) -> None:
    (photos / "p3.png").write_bytes(b"torn")
    ran = pooled("--json")
    assert ran.code == 1
    bad = [record for record in ran.records if record["status"] == "error"]
    assert [record["sample"] for record in bad] == ["p3"]
    good = [record for record in ran.records if record["status"] == "ok"]
    assert len(good) == 10 * 2
    for call in (1, 2):
        mine = [record for record in good if record["call"] == call]
        assert [record["row"] for record in mine] == list(range(10))
        assert {record["files"]["tensor"] for record in mine} == {
            str(tmp_path / "out" / f"net_act@{call}_mean.npy")
        }
        assert mine[0]["shape"] == [6]
        assert np.load(mine[0]["files"]["tensor"]).shape == (10, 6)
        index = index_of(Path(mine[0]["files"]["index"]))
        assert [line["sample"] for line in index] == [record["sample"] for record in mine]
    noted = index_of(tmp_path / "out" / "manifest.jsonl")
    assert [line["status"] for line in noted].count("ok") == 20
    assert [line.get("row") for line in noted if line["call"] == 2] == list(range(10))


@pytest.mark.parametrize("form", READ)
def test_every_format_holds_the_same_and_goes_on(pooled: Any, tmp_path: Path, form: str) -> None:
    path = tmp_path / "out" / f"net_second_max.{form}"
    assert pooled("--save", form, pool="max", layer="second").code == 0
    matrix = READ[form](path)
    assert pooled("--save", "npy", pool="max", layer="second").code == 0
    np.testing.assert_array_equal(READ["npy"](path.with_suffix(".npy")), matrix)
    path.with_suffix(".npy").unlink() if form != "npy" else None
    before = path.read_bytes()
    again = pooled("--save", form, "--skip-existing", "--json", pool="max", layer="second")
    assert {record["status"] for record in again.records} == {"skipped"}
    assert path.read_bytes() == before


def test_poolings(pooled: Any, nets: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    maps = torch.cat(by_hand(nets, photos, "net", "second"))
    tokens = torch.cat(by_hand(nets, photos, "tokens", "block"))
    windows = torch.stack(by_hand(nets, photos, "tokens", "windows"))
    assert windows.shape == (11, 7, 7, 5)
    for net, layer, pool, expected in (
        ("net", "second", "max", maps.amax((2, 3))),
        ("net", "second", "flatten", maps.flatten(1)),
        ("net", "head", "mean", torch.cat(by_hand(nets, photos, "net", "head"))),
        ("tokens", "block", "cls", tokens[:, 0]),
        ("tokens", "block", "mean", tokens[:, 1:].mean(1)),
        ("tokens", "windows", "mean", windows.mean((1, 2))),
    ):
        assert pooled(net=net, layer=layer, pool=pool).code == 0
        found = np.load(out / f"{net}_{layer}_{pool}.npy")
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_inputs_of_layers(pooled: Any, nets: Path, photos: Path, tmp_path: Path) -> None:
    assert pooled("--what", "input", layer="head").code == 0
    expected = torch.cat(by_hand(nets, photos, "net", "act")[1::2]).mean((2, 3))
    found = np.load(tmp_path / "out" / "net_head_mean_input.npy")
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_what_cannot_be_is_refused_before_anything_is_written(pooled: Any, tmp_path: Path) -> None:
    assert "no class token" in pooled(pool="cls", layer="second").err
    assert pooled(pool="cls", layer="second").code == 2
    assert pooled("--what", "attention").code == 2
    assert pooled("--top", 3).code == 2
    assert pooled("--stats").code == 2
    assert not list(tmp_path.glob("out/net*"))


def test_a_row_of_another_length_is_that_pictures_error(pooled: Any, tmp_path: Path) -> None:
    ran = pooled("--resize", "none", "--crop", "none", "--json", pool="flatten", layer="second")
    assert ran.code == 1
    widths = [(80 + 9 * n - 5) // 4 + 1 for n in range(11)]
    fits = [width == widths[0] for width in widths]
    assert [record["status"] == "ok" for record in ran.records] == fits
    assert "do not fit into a row of" in ran.err
    assert np.load(tmp_path / "out" / "net_second_flatten.npy").shape[0] == sum(fits)
    assert pooled("--resize", "none", "--crop", "none", layer="second").code == 0


def test_a_layer_that_never_runs(pooled: Any, tmp_path: Path) -> None:
    ran = pooled("-l", "spare", "--json", net="tokens", layer="head")
    assert ran.code == 1
    assert [r["layer"] for r in ran.records if r["status"] == "error"] == ["spare"]
    assert np.load(tmp_path / "out" / "tokens_head_mean.npy").shape == (11, 4)


def test_a_dry_run_names_the_files_and_writes_none(pooled: Any, tmp_path: Path) -> None:
    ran = pooled("--dry-run", layer="second")
    out = tmp_path / "out"
    assert ran.out.splitlines() == [
        str(out / "net_second_mean.npy"),
        str(out / "net_second_mean.index.jsonl"),
    ]
    assert not out.exists()
