"""Bytes flipped and cut: always a clear message or a correct load, never anything else."""

from __future__ import annotations

import io
import pickle
import tempfile
import warnings
from pathlib import Path

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_network import Source, TinyNet, trained

from hookscope.errors import CheckpointError
from hookscope.models.checkpoint import load_checkpoint, loading

NET = trained(TinyNet())
STATE = dict(NET.state_dict())
# Whether every byte that matters is under a checksum, so that what loads is what was saved.
CHECKED = {"zip": True, "torchscript": True, "old": False, "safetensors": False, "pickle": False}


def written(kind: str) -> bytes:
    buffer = io.BytesIO()
    wrapped = {
        "state_dict": {f"module.{name}": tensor for name, tensor in STATE.items()},
        "epoch": 3,
    }
    if kind == "zip":
        torch.save(wrapped, buffer)
    elif kind == "old":
        torch.save(wrapped, buffer, _use_new_zipfile_serialization=False)
    elif kind == "torchscript":
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", FutureWarning
            )  # torch.jit is deprecated, its files stay
            torch.jit.save(torch.jit.script(NET), buffer)
    elif kind == "safetensors":
        buffer.write(safetensors.torch.save(STATE))
    else:
        pickle.dump({name: tensor.numpy() for name, tensor in STATE.items()}, buffer)
    return buffer.getvalue()


VALID = {kind: written(kind) for kind in CHECKED}


@st.composite
def damaged(draw: st.DrawFn, kind: str) -> bytes:
    content = bytearray(VALID[kind])
    # Headers, tables and the first pickle are where the interesting bytes are.
    place = st.one_of(
        st.integers(0, len(content) - 1),
        st.integers(0, 300),
        st.integers(len(content) - 300, len(content) - 1),
    )
    for position, flip in draw(st.lists(st.tuples(place, st.integers(1, 255)), max_size=3)):
        content[position] ^= flip
    if draw(st.booleans()):
        del content[draw(place) :]
    return bytes(content)


@pytest.mark.parametrize("kind", CHECKED)
@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_damaged_bytes_load_right_or_are_refused(
    kind: str, monkeypatch: pytest.MonkeyPatch, data: st.DataObject
) -> None:
    # Naming the right torchvision model takes a second each time, and is tested elsewhere.
    monkeypatch.setattr(loading, "guess", lambda *_: None)
    content = data.draw(damaged(kind))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "best.pth"
        path.write_bytes(content)
        try:
            model, account = load_checkpoint(path, Source())
        except CheckpointError as refusal:
            said: str | None = refusal.message
        else:
            said = None
        if said is not None:
            assert "best.pth" in said
            return
        assert account.loaded == len(STATE)
        for name, tensor in model.state_dict().items():
            assert tensor.shape == STATE[name].shape
            if CHECKED[kind]:
                assert torch.equal(tensor, STATE[name]), name


@pytest.mark.parametrize("kind", CHECKED)
def test_the_undamaged_file_loads(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "best.pth"
    path.write_bytes(VALID[kind])
    model, _ = load_checkpoint(path, Source())
    assert all(torch.equal(tensor, STATE[name]) for name, tensor in model.state_dict().items())
