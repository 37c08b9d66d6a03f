"""Fetching weights: whole and checked, or not at all and said why."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torchvision import models

from hookscope.errors import WeightsError
from hookscope.models import weights_cache
from hookscope.models.torchvision_source import TorchvisionSource

CONTENT = b"weights" * 10_000
HASH = hashlib.sha256(CONTENT).hexdigest()[:8]


class _Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if "missing" in self.path:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[:100] if "cut" in self.path else CONTENT)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with http.server.HTTPServer(("127.0.0.1", 0), _Server) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    return tmp_path / "hub" / "checkpoints"


def test_a_download_lands_where_torchvision_looks(server: str, cache: Path) -> None:
    path = weights_cache.download(f"{server}/models/net-{HASH}.pth")
    assert path == cache / f"net-{HASH}.pth"
    assert path.read_bytes() == CONTENT
    assert list(cache.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing-{}.pth", "404|Not Found"),
        ("cut-{}.pth", "hash"),
        ("net-00000000.pth", "hash"),
    ],
)
def test_a_failed_download_leaves_nothing(server: str, cache: Path, name: str, reason: str) -> None:
    with pytest.raises(WeightsError, match=reason):
        weights_cache.download(f"{server}/{name.format(HASH)}")
    assert list(cache.iterdir()) == []


def test_no_server_and_an_unwritable_cache_are_said(cache: Path) -> None:
    with pytest.raises(WeightsError, match="refused"):
        weights_cache.download(f"http://127.0.0.1:1/net-{HASH}.pth")
    cache.rmdir()
    cache.write_text("in the way")
    with pytest.raises(WeightsError, match="exists"):
        weights_cache.download(f"http://127.0.0.1:1/net-{HASH}.pth")


def test_entries_have_a_hash_to_check_a_download_by() -> None:
    # Two quantised files carry theirs behind an underscore, where torchvision checks none either.
    names = [name for name in models.list_models() if not name.startswith("quantized")]
    for name in names:
        for entry in TorchvisionSource.named(name, {}).entries.values():
            found = weights_cache._HASH_IN_NAME.search(weights_cache.cached_file(entry.url).name)
            assert found is not None, entry
            assert len(found[1]) >= 8, entry


@pytest.mark.parametrize("zipped", [True, False])
def test_both_formats_are_read(tmp_path: Path, zipped: bool) -> None:
    state = {"x": torch.arange(6.0)}
    torch.save(state, tmp_path / "w.pth", _use_new_zipfile_serialization=zipped)
    assert torch.equal(weights_cache.read(tmp_path / "w.pth")["x"], state["x"])


def test_what_is_no_state_dict_is_refused(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="no state dict"):
        weights_cache.read(tmp_path / "w.pth")
