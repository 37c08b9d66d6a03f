"""Several processes, one run: torchrun's ranks, restarted ones, and ranks without a picture."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import open_image

PICTURES = 7


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory, chelsea: Path) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    picture = open_image(chelsea).convert("RGB").resize((120, 90))
    for number in range(PICTURES):
        picture.rotate(50 * number).save(folder / f"p{number}.png")
    return folder


@pytest.fixture
def ranks(hookscope: Any, monkeypatch: Any) -> Any:
    """A command run once for each of several ranks, one after the other, in this process."""

    def run_all(world: int, *arguments: object, restarts: int = 0) -> list[Any]:
        ran = []
        for rank in range(world):
            for name, value in (
                ("RANK", rank),
                ("WORLD_SIZE", world),
                ("LOCAL_RANK", rank),
                ("LOCAL_WORLD_SIZE", world),
                ("TORCHELASTIC_RESTART_COUNT", restarts),
            ):
                monkeypatch.setenv(name, str(value))
            ran.append(hookscope(*arguments))
        for name in ("RANK", "WORLD_SIZE"):
            monkeypatch.delenv(name)
        return ran

    return run_all


def gradcam(photos: Path, net: str, out: Path, *more: str) -> list[str]:
    flags = ["-m", net, "-l", "second", "--save", "npy", "-o", str(out)]
    return ["gradcam", str(photos), *flags, *more]


def pictures_and_maps(out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    overlays = {path.name: np.asarray(open_image(path), dtype=int) for path in out.glob("*.png")}
    return overlays, {path.name: np.load(path) for path in out.glob("*.npy")}


def assert_same_results(one: Path, other: Path) -> None:
    (pictures, maps), (other_pictures, other_maps) = map(pictures_and_maps, (one, other))
    assert set(pictures) == set(other_pictures)
    assert set(maps) == set(other_maps)
    for name, found in maps.items():
        np.testing.assert_allclose(other_maps[name], found, atol=1e-5)
    for name, drawn in pictures.items():  # a number that moved may be rounded to the next colour
        assert np.mean(other_pictures[name] != drawn) < 0.01


def manifest_lines(out: Path, pattern: str) -> list[dict[str, Any]]:
    names = sorted(out.glob(pattern))
    return [json.loads(line) for name in names for line in name.read_text().splitlines()]


def records_apart_from_rounding(lines: list[dict[str, Any]]) -> dict[str, Any]:
    kept = ("image", "sample", "model", "layer", "call", "method", "class_index", "files", "shape")
    return {line["sample"]: [line[name] for name in kept] for line in lines}


def test_torchrun_gives_what_one_process_gives(
    hookscope: Any, net: str, photos: Path, tmp_path: Path
) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    alone = hookscope(*gradcam(photos, net, one))
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    together = subprocess.run(
        [sys.executable, *torchrun, "-m", "hookscope", *gradcam(photos, net, two)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert together.returncode == 0, together.stderr
    assert sorted(together.stdout.replace(str(two), str(one)).splitlines()) == sorted(alone.lines)
    assert_same_results(one, two)
    assert sorted(path.name for path in two.glob("*.jsonl")) == [
        "manifest.shard1-of-2.jsonl",
        "manifest.shard2-of-2.jsonl",
    ]
    assert records_apart_from_rounding(
        manifest_lines(two, "manifest.shard*.jsonl")
    ) == records_apart_from_rounding(manifest_lines(one, "manifest.jsonl"))


@pytest.mark.parametrize("world", [2, 3])
def test_results_do_not_depend_on_the_number_of_ranks(
    hookscope: Any, ranks: Any, net: str, photos: Path, tmp_path: Path, world: int
) -> None:
    one, many = tmp_path / "one", tmp_path / "many"
    alone = hookscope(*gradcam(photos, net, one, "--json"))
    shares = ranks(world, *gradcam(photos, net, many, "--json"))
    assert [ran.code for ran in (alone, *shares)] == [0] * (world + 1)
    records = [record for ran in shares for record in ran.records]
    assert [record["sample"] for record in records] == [r["sample"] for r in alone.records]
    assert_same_results(one, many)


def test_a_job_array_of_ranks_divides_each_share(
    ranks: Any, net: str, photos: Path, tmp_path: Path
) -> None:
    done = []
    for shard in ("1/2", "2/2"):
        for ran in ranks(2, *gradcam(photos, net, tmp_path, "--json", "--shard", shard)):
            assert ran.code == 0
            done += [record["sample"] for record in ran.records]
    assert done == [f"p{number}" for number in range(PICTURES)]
    names = {path.name for path in tmp_path.glob("manifest*.jsonl")}
    assert names == {f"manifest.shard{number}-of-4.jsonl" for number in range(1, 5)}


def test_a_restarted_rank_goes_on_where_it_was(
    ranks: Any, net: str, photos: Path, tmp_path: Path
) -> None:
    command = gradcam(photos, net, tmp_path, "--json")
    ranks(2, *command)
    gone = sorted(tmp_path.glob("*.png"))[1::3]
    for path in gone:
        path.unlink()
    again = [record for ran in ranks(2, *command, restarts=1) for record in ran.records]
    assert [record["status"] for record in again].count("ok") == len(gone)
    assert [record["status"] for record in again].count("skipped") == PICTURES - len(gone)


@pytest.mark.parametrize(
    "more", [("gradcam", "-l", "second"), ("capture", "-l", "second"), ("capture", "--pool", "max")]
)
def test_a_rank_without_a_picture_ends_with_0(
    ranks: Any, net: str, photos: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    name, *flags = more
    if "-l" not in flags:
        flags += ["-l", "second"]
    out = tmp_path / "out"
    shares = ranks(3, name, photos / "p0.png", "-m", net, *flags, "-o", out)
    assert [ran.code for ran in shares] == [0, 0, 0]
    assert [bool(ran.out) for ran in shares] == [False, False, True]
    assert [ran.err for ran in shares[:2]] == ["", ""]
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_only_rank_0_draws_a_bar(
    ranks: Any, net: str, photos: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    drawn = []
    command = gradcam(photos, net, tmp_path)
    for rank in ("0", "1"):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", "2")
        from hookscope.cli.app import run

        assert run(command) == 0
        drawn.append("pictures" in screen.getvalue())
    assert drawn == [True, False]
