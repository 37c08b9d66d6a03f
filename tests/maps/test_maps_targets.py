"""Class scores are found in whatever a network returns, and say the right class."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch.nn import functional

from hookscope.errors import TargetError
from hookscope.maps.targets import BinaryBoard, LogitBoard, check_classes, read_output

LOGITS = torch.tensor([[1.0, 3.0, -2.0, 0.5], [0.0, -1.0, 2.0, 1.0]])
Outputs = namedtuple("Outputs", ["logits", "aux_logits"])


@dataclass
class Result:
    loss: float
    features: torch.Tensor
    scores: torch.Tensor


class TestWhereTheScoresAre:
    @pytest.mark.parametrize(
        "output",
        [
            LOGITS,
            {"loss": torch.tensor(3.0), "logits": LOGITS},
            {"aux": -LOGITS, "out": LOGITS},
            Outputs(LOGITS, None),
            (torch.randn(2, 3, 4, 4), LOGITS, -LOGITS),
            [torch.randn(2, 3, 4, 4), LOGITS],
            Result(0.5, torch.randn(2, 3, 4, 4), LOGITS),
            OrderedDict(hidden=torch.randn(2, 5, 7), head={"classes": LOGITS}),
            LOGITS[:, :, None, None],
        ],
    )
    def test_found_by_default(self, output):
        board = read_output(output)
        assert board.ranked(1).flatten().tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("output", "key"),
        [
            ({"logits": -LOGITS, "other": LOGITS}, "other"),
            ((-LOGITS, LOGITS), "1"),
            (Outputs(-LOGITS, LOGITS), "aux_logits"),
            (Outputs(-LOGITS, LOGITS), "1"),
            (Result(0.5, LOGITS, -LOGITS), "features"),
            ({"heads": {"main": LOGITS, "side": -LOGITS}}, "heads.main"),
            ({"heads.main": LOGITS, "heads": -LOGITS}, "heads.main"),
            ({"heads": (-LOGITS, LOGITS)}, "heads.1"),
            ({"first": -LOGITS, "head": {"logits": LOGITS}}, "head"),
        ],
    )
    def test_key_chooses(self, output, key):
        assert torch.equal(read_output(output, key).logits, LOGITS)

    def test_unknown_key_names_the_known_ones(self):
        with pytest.raises(TargetError, match=r"'logit'(.|\n)*aux, logits"):
            read_output({"aux": LOGITS, "logits": LOGITS}, "logit")
        with pytest.raises(TargetError, match="one tensor"):
            read_output(LOGITS, "logits")

    @pytest.mark.parametrize("output", [None, {"a": "b"}, (), torch.randn(2, 3, 4), [3.0]])
    def test_no_scores_is_an_error(self, output):
        with pytest.raises(TargetError):
            read_output(output)

    def test_integers_are_no_scores(self):
        with pytest.raises(TargetError, match="int64"):
            read_output(torch.tensor([[1, 2, 3]]))


class TestLogits:
    def test_ranks_scores_and_probabilities(self):
        board = read_output(LOGITS)
        assert board.count == 4
        assert board.ranked(3).tolist() == [[1, 0, 3], [2, 3, 0]]
        assert board.ranked(99).shape == (2, 4)
        classes = torch.tensor([3, 2])
        assert board.scores(classes).tolist() == [0.5, 2.0]
        expected = torch.stack([LOGITS.softmax(1)[0, 3], LOGITS.softmax(1)[1, 2]])
        torch.testing.assert_close(board.probabilities(classes), expected)

    def test_multi_label_probabilities_are_sigmoids(self):
        board = read_output(LOGITS, multi_label=True)
        classes = torch.tensor([0, 1])
        expected = torch.stack([LOGITS[0, 0].sigmoid(), LOGITS[1, 1].sigmoid()])
        torch.testing.assert_close(board.probabilities(classes), expected)

    def test_probabilities_stay_what_they_are(self):
        chances = LOGITS.softmax(1)
        board = read_output(chances)
        assert torch.equal(board.probabilities(torch.tensor([1, 1])), chances[:, 1])
        labels = torch.tensor([[0.9, 0.8, 0.1]])
        board = read_output(labels, multi_label=True)
        assert torch.equal(board.probabilities(torch.tensor([0])), labels[:, 0])

    def test_logits_within_zero_and_one_are_not_mistaken(self):
        logits = torch.tensor([[0.2, 0.7]])
        board = read_output(logits)
        torch.testing.assert_close(board.probabilities(torch.tensor([1])), logits.softmax(1)[:, 1])

    def test_half_precision_becomes_float32(self):
        assert read_output(LOGITS.half()).scores(torch.tensor([0, 0])).dtype == torch.float32

    @pytest.mark.parametrize("wrong", [-1, 4, 1000])
    def test_a_class_out_of_reach(self, wrong):
        with pytest.raises(TargetError, match="0 to 3"):
            check_classes([0, wrong], 4)


@pytest.mark.parametrize("shape", [(2, 1), (2,)])
def test_one_logit_is_two_classes(shape):
    logit = torch.tensor([2.0, -3.0]).reshape(shape)
    board = read_output(logit)
    assert isinstance(board, BinaryBoard)
    assert board.count == 2
    assert board.ranked(2).tolist() == [[1, 0], [0, 1]]
    assert board.scores(torch.tensor([0, 0])).tolist() == [-2.0, 3.0]
    both = [board.probabilities(torch.tensor([k, k])) for k in (0, 1)]
    torch.testing.assert_close(both[0] + both[1], torch.ones(2))
    assert both[1][0] == pytest.approx(torch.tensor(2.0).sigmoid().item())
    assert isinstance(read_output(torch.randn(1, 2)), LogitBoard)


class TestSegmentation:
    def output(self) -> torch.Tensor:
        """Two pictures, three classes; the first is half class 0 and half class 2."""
        logits = torch.randn(2, 3, 4, 6, generator=torch.Generator().manual_seed(2)) * 0.1
        logits[0, 2, :2] += 5
        logits[0, 0, 2:] += 5
        logits[1, 0] += 5
        return logits.requires_grad_()

    def test_score_is_the_sum_over_the_pixels_of_the_class(self):
        logits = self.output()
        board = read_output({"out": logits, "aux": -logits})
        found = board.scores(torch.tensor([2, 0]))
        assert found[0] == logits[0, 2, :2].sum()
        torch.testing.assert_close(found[1], logits[1, 0].sum())
        assert board.notes(torch.tensor([2, 0])) == [None, None]
        chances = functional.softmax(logits.detach(), 1)[0, 2, :2].mean()
        torch.testing.assert_close(board.probabilities(torch.tensor([2, 0]))[0], chances)

    def test_a_class_without_pixels_takes_all_of_them_and_says_so(self):
        logits = self.output()
        board = read_output(logits)
        torch.testing.assert_close(board.scores(torch.tensor([1, 1])), logits[:, 1].sum((1, 2)))
        first, second = board.notes(torch.tensor([1, 0]))
        assert "no pixel is predicted as class 1" in first
        assert second is None

    def test_predicted_class_and_background(self):
        logits = self.output()
        assert read_output(logits).ranked(1)[1].tolist() == [0]
        assert read_output(logits, background=0).ranked(2)[0].tolist() == [2, 1]

    def test_one_channel_is_two_classes(self):
        logits = torch.tensor([[[[3.0, -1.0], [-2.0, -4.0]]]])
        board = read_output(logits)
        assert board.count == 2
        assert board.ranked(1).tolist() == [[0]]
        assert board.scores(torch.tensor([1])).tolist() == [3.0]
        assert board.scores(torch.tensor([0])).tolist() == [7.0]

    def test_variants_are_scored_over_the_same_pixels(self):
        logits = self.output().detach()
        score = read_output(logits).anchored(0, 2)
        variants = torch.randn(5, 3, 4, 6)
        torch.testing.assert_close(score(read_output(variants)), variants[:, 2, :2].sum((1, 2)))


class TestDetection:
    def output(self) -> list[dict[str, torch.Tensor]]:
        return [
            {
                "boxes": torch.rand(3, 4),
                "labels": torch.tensor([7, 3, 7]),
                "scores": torch.tensor([0.4, 0.6, 0.9], requires_grad=True),
            },
            {
                "boxes": torch.rand(0, 4),
                "labels": torch.zeros(0, dtype=torch.long),
                "scores": torch.zeros(0),
            },
        ]

    def test_best_box_of_the_class(self):
        output = self.output()
        board = read_output(output)
        assert board.count is None
        assert board.ranked(2).tolist() == [[7, 3], [-1, -1]]
        found = board.scores(torch.tensor([7, 7]))
        assert found.tolist() == pytest.approx([0.9, 0.0])
        found.sum().backward()
        assert output[0]["scores"].grad.tolist() == [0, 0, 1]

    def test_nothing_there_is_a_result(self):
        board = read_output(self.output())
        assert board.notes(torch.tensor([3, -1])) == [None, "nothing detected"]
        assert board.notes(torch.tensor([5, 7])) == [
            "no detection of class 5",
            "no detection of class 7",
        ]

    def test_no_picture_with_boxes(self):
        board = read_output(self.output()[1:])
        assert board.ranked(3).tolist() == [[-1]]

    def test_negative_class_is_refused(self):
        with pytest.raises(TargetError, match="-1"):
            check_classes([-1], None)
