"""capture --pool again: going on, what must stay, shards, and matrices larger than memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from embedding_runs import hidden, index_of

from hookscope.output.matrix import Matrix, Replacing
from hookscope.output.matrix_index import Picture
from hookscope.run.capturing.embedding import Embedding


def files(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.glob("net*")}


def test_going_on_gives_the_bytes_of_a_run_at_one_go(
    pooled: Any, photos: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Pictures that come in between, one that changes, one that goes: nothing twice, in order."""
    late = {name: (photos / name).read_bytes() for name in ("p0.png", "p4.png", "p10.png")}
    for name in late:
        (photos / name).unlink()
    assert pooled("--batch-size", 1).code == 0
    for name, content in late.items():
        (photos / name).write_bytes(content)
    (photos / "p5.png").write_bytes((photos / "p6.png").read_bytes())
    computed: list[int] = []
    original = Embedding.compute
    monkeypatch.setattr(
        Embedding,
        "compute",
        lambda self, network, batch: (
            computed.extend(int(one.sample.sample[1:]) for one in batch),
            original(self, network, batch),
        )[1],
    )
    ran = pooled("--batch-size", 1, "--skip-existing", "--json")
    assert ran.code == 0
    assert sorted(computed) == [0, 4, 10]  # p5 has the content of p6, whose row is there
    skipped = {r["sample"] for r in ran.records if r["status"] == "skipped"}
    assert skipped == {f"p{n}" for n in range(11)} - {"p0", "p4", "p10"}
    assert [r["row"] for r in ran.records if r["call"] == 1] == list(range(11))
    found = files(tmp_path / "out")
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    assert pooled("--batch-size", 1).code == 0
    at_one_go = files(tmp_path / "out")
    assert [name for name in found if found[name] != at_one_go[name]] == []
    computed.clear()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("net*")}
    again = pooled("--batch-size", 1, "--skip-existing")
    assert (again.code, again.out, computed) == (0, "", [])
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("net*")}


def test_other_settings_or_weights_are_not_gone_on_with(pooled: Any, tmp_path: Path) -> None:
    path = tmp_path / "out" / "net_second_mean.npy"
    pooled(layer="second")
    first = np.load(path)
    ran = pooled("--skip-existing", "--resize", "224x224", "--json", layer="second")
    assert {record["status"] for record in ran.records} == {"ok"}
    assert not np.allclose(np.load(path), first)


def test_a_damaged_row_is_computed_again(pooled: Any, tmp_path: Path) -> None:
    path = tmp_path / "out" / "net_second_mean.npy"
    pooled("--batch-size", 1, layer="second")
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[-3 * 6 * 4] ^= 1  # in the third row from the end
    path.write_bytes(damaged)
    ran = pooled("--batch-size", 1, "--skip-existing", "--json", layer="second")
    assert [r["row"] for r in ran.records if r["status"] == "ok"] == [8]
    assert path.read_bytes() == whole


def test_matrices_of_others_stay(pooled: Any, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    mine = out / "net_second_mean.npy"
    np.save(mine, np.ones(3))
    ran = pooled(layer="second")
    assert ran.code == 2
    assert "was not made by hookscope: kept" in ran.err
    assert np.load(mine).shape == (3,)
    assert pooled("--force", layer="second").code == 0
    assert np.load(mine).shape == (11, 6)
    (photos / "p7.png").unlink()
    ran = pooled("--skip-existing", layer="second")
    assert ran.code == 2
    assert "has a row of ../photos/p7.png, which is not among the inputs: kept" in ran.err
    assert np.load(mine).shape == (11, 6)
    assert pooled("--skip-existing", "--force", layer="second").code == 0
    assert np.load(mine).shape == (10, 6)
    assert pooled("--no-clobber", layer="second").code == 2
    assert pooled("--no-clobber", "--skip-existing", layer="second").code == 0
    extra = (photos / "p2.png").read_bytes()
    (photos / "p11.png").write_bytes(extra)
    ran = pooled("--no-clobber", "--skip-existing", layer="second")
    assert (ran.code, np.load(mine).shape) == (1, (10, 6))
    assert "--no-clobber keeps it" in ran.err


@pytest.mark.parametrize("total", [1, 3, 20])
def test_shards_have_matrices_of_their_own_that_make_up_the_whole(
    pooled: Any, tmp_path: Path, total: int
) -> None:
    out = tmp_path / "out"
    pooled(layer="second")
    whole = np.load(out / "net_second_mean.npy")
    names = [line["sample"] for line in index_of(out / "net_second_mean.index.jsonl")]
    parts, found = [], []
    for number in range(1, total + 1):
        assert pooled("--shard", f"{number}/{total}", layer="second").code == 0
        stem = out / f"net_second_mean.shard{number}-of-{total}"
        if stem.with_name(f"{stem.name}.npy").exists():
            parts.append(np.load(f"{stem}.npy"))
            found += [line["sample"] for line in index_of(Path(f"{stem}.index.jsonl"))]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-6)
    assert found == names


def test_two_runs_do_not_fill_one_matrix(pooled: Any, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    other = Matrix(tmp_path / "out", "net_second_mean.npy", "settings", Replacing())
    other.open([])
    other.add(Picture("cat.jpg", "cat", "5ha"), bytes(24))
    ran = pooled(layer="second")
    assert ran.code == 2
    assert "another run is filling" in ran.err
    other.close()
    assert pooled(layer="second").code == 0
    assert hidden(tmp_path / "out") == []


STREAM = """
import resource, sys
from pathlib import Path
from hookscope.output.matrix import Matrix, Replacing
from hookscope.output.matrix_index import Picture

matrix = Matrix(Path(sys.argv[1]), f"net_layer_flatten.{sys.argv[2]}", "settings", Replacing())
matrix.open([])
row = bytes(range(250)) * 1600
for number in range(int(sys.argv[3])):
    matrix.add(Picture(f"{number}.jpg", f"{number}", f"{number:064x}"), row)
assert matrix.publish()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("form", ["npy", "npz", "safetensors"])
def test_the_matrix_is_never_all_in_memory(tmp_path: Path, form: str) -> None:
    def peak(rows: int) -> int:
        out = tmp_path / f"{form}{rows}"
        out.mkdir()
        command = [sys.executable, "-c", STREAM, str(out), form, str(rows)]
        return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    few, many = peak(10), peak(300)  # 4 and 120 MB
    assert many - few < 10_000  # kB
