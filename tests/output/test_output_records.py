"""Records have the contract's fields in its order, and are one line of JSON each."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hookscope.output.records import capture_record, dumps, error_record, gradcam_record

# Section 4 of the contract.
COMMON = [
    *("schema", "command", "status", "image", "sample", "model", "weights", "layer", "call"),
    *("preprocess", "device", "files", "reason", "error"),
]
CAPTURE = [
    *("what", "shape", "dtype", "layout", "min", "max", "mean", "std"),
    *("zero_fraction", "dead_channels", "nonfinite"),
]
GRADCAM = ["method", "class_index", "class_name", "score", "probability", "shape", "min", "max"]

GIVEN: dict[str, Any] = {
    "image": "a/cat.jpg",
    "sample": "cat",
    "model": "resnet18",
    "weights": "IMAGENET1K_V1",
    "layer": "layer4",
    "call": 1,
    "preprocess": {"resize": 256},
    "device": "cpu",
    "files": {"tensor": "out/x.npy"},
}


def test_capture_fields_in_order() -> None:
    record = capture_record(**GIVEN, shape=torch.Size([512, 7, 7]), min=0.0)
    assert list(record) == COMMON + CAPTURE
    assert record["schema"] == 1
    assert record["command"] == "capture"
    assert record["status"] == "ok"
    assert record["what"] == "output"
    assert record["shape"] == [512, 7, 7]
    assert record["max"] is None
    assert {name: record[name] for name in GIVEN} == GIVEN


def test_gradcam_fields_in_order() -> None:
    record = gradcam_record(
        **GIVEN, status="degenerate", reason="all zero", method="gradcam", class_index=281
    )
    assert list(record) == COMMON + GRADCAM
    assert (record["command"], record["status"]) == ("gradcam", "degenerate")
    assert record["class_name"] is None


@pytest.mark.parametrize(("command", "own"), [("capture", CAPTURE), ("gradcam", GRADCAM)])
def test_an_error_has_the_fields_of_its_command(command: str, own: list[str]) -> None:
    record = error_record(command, error="it is a text", image="cat.jpg")
    assert list(record) == COMMON + own
    assert record["status"] == "error"
    assert record["error"] == "it is a text"
    assert record["files"] == {}
    assert all(record[name] is None for name in own)


def test_more_fields_come_last() -> None:
    assert list(capture_record(**GIVEN, row=3))[-1] == "row"
    evaluation = {"average_drop": math.nan}
    record = gradcam_record(**GIVEN, method="gradcam", evaluation=evaluation)
    assert list(record)[-1] == "evaluation"
    assert json.loads(dumps(record))["evaluation"] == {"average_drop": None}


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", [float, np.float64, np.float32, torch.tensor])
def test_numbers_that_are_not_finite_are_null(number: float, kind: Any) -> None:
    line = dumps({"a": kind(number), "b": [{"c": kind(number)}], "d": kind(1.5)})
    assert json.loads(line) == {"a": None, "b": [{"c": None}], "d": 1.5}


def test_paths_and_tuples_are_written() -> None:
    assert json.loads(dumps({"a": Path("x/y"), "b": (1, 2), "c": np.int64(3), 5: True})) == {
        "a": "x/y",
        "b": [1, 2],
        "c": 3,
        "5": True,
    }


def test_letters_of_any_script_stay() -> None:
    assert dumps({"image": "猫 é.jpg"}) == '{"image": "猫 é.jpg"}'


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=[])) | st.floats()))
def test_any_record_is_one_line_that_reads_back(record: dict[str, Any]) -> None:
    line = dumps(record)
    assert len(line.splitlines()) == 1
    line.encode()
    expected = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }
    assert json.loads(line) == expected
