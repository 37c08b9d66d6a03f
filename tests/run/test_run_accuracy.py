"""What a run says of right and wrong: each record, and the accuracy at the end."""

from __future__ import annotations

from typing import Any

from hookscope.models.labels import Labels
from hookscope.render.verdicts import truth
from hookscope.run.explaining.truth import Accuracy, truth_field

PETS = Labels(("tabby cat", "Egyptian cat", "dog", "crane", "hot-dog", "crane", "T-shirt", ""))


def record(image: str | None, correct: bool | None = None, **fields: Any) -> dict[str, Any]:
    known = {} if correct is None else {"truth": {"correct": correct}}
    return {"status": "ok", "image": image, **known, **fields}


def sentence(*records: dict[str, Any]) -> str | None:
    accuracy = Accuracy()
    for one in records:
        accuracy.add(one)
    return accuracy.sentence()


def test_accuracy_counts_pictures() -> None:
    many = [record(f"{number}.png", number < 26) for number in range(30)]
    assert sentence(*many) == "accuracy 0.867: 26 of 30 pictures right"
    assert sentence(*many, *many[:5], *many[-1:]) == sentence(*many)
    assert sentence(record("a", True)) == "accuracy 1.000: 1 of 1 picture right"


def test_accuracy_leaves_out_what_has_no_answer() -> None:
    assert sentence() is None
    assert sentence(record("a"), record("b", status="error")) is None
    failures = [record("b", True, status="error"), record(None, status="error")]
    assert sentence(record("a", False), *failures) == "accuracy 0.000: 0 of 1 picture right"
    told = [record("a", True), record("b", False, status="skipped"), record("c"), record("c")]
    assert sentence(*told) == "accuracy 0.500: 1 of 2 pictures right; 1 without a true class"
    mixed = sentence(record("a", True), record("a"), record("b"), record("b", False))
    assert mixed == "accuracy 0.500: 1 of 2 pictures right"
    degenerate = record("d", True, status="degenerate", truth={"correct": True})
    assert sentence(degenerate, record("e", truth=None)) == (
        "accuracy 1.000: 1 of 1 picture right; 1 without a true class"
    )


def test_the_field_is_what_the_report_reads() -> None:
    wrong = truth_field(1, 2, PETS)
    assert wrong == {
        "correct": False,
        "class_index": 1,
        "class_name": "Egyptian cat",
        "predicted_index": 2,
        "predicted_name": "dog",
    }
    verdict = truth({"truth": wrong})
    assert verdict is not None
    assert verdict.sentence == "The network says dog; the true class is Egyptian cat."
    right = truth({"truth": truth_field(4, 4, Labels())})
    assert right is not None
    assert (right.label, right.sentence) == ("right", "The network is right: class 4.")


def test_a_network_that_says_nothing_is_not_right() -> None:
    field = truth_field(0, None, PETS)
    assert field["correct"] is False
    assert field["predicted_index"] is field["predicted_name"] is None
    verdict = truth({"truth": field})
    assert verdict is not None
    assert verdict.sentence == "The network says nothing; the true class is tabby cat."
