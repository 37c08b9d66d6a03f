"""Whether evaluations tell good maps from bad ones: on shapes whose places are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import pytest
import shape_network
import small_network
import torch
from torch import Tensor, nn
from torch.nn import functional

from hookscope.gradcam import Heatmap, explain
from hookscope.gradcam.evaluation import PASSES, Evaluation, Evaluator
from hookscope.gradcam.question import Question, addresses_of
from hookscope.hooks.dressing import state
from hookscope.render.verdicts import trust

PICTURES = 20


@pytest.fixture(scope="module")
def scenes() -> list[shape_network.Scene]:
    return shape_network.scenes(PICTURES, 31)


def gradcams(network: nn.Module, x: Tensor, classes: Tensor) -> list[list[Heatmap]]:
    return explain(network, x, layers=[shape_network.LAYER], classes=classes, multi_label=True)


def evaluator(network: nn.Module, explainer=gradcams) -> Evaluator:
    addresses = addresses_of(network, [shape_network.LAYER])
    return Evaluator(explainer, Question(addresses, multi_label=True))


def asked(scenes: Sequence[shape_network.Scene]) -> Tensor:
    return torch.tensor([list(scene.boxes) for scene in scenes])


def flat(evaluations: list[list[Evaluation]]) -> list[Evaluation]:
    return [one for row in evaluations for one in row]


def with_maps(found: list[list[Heatmap]], maps: Sequence[Sequence[Tensor]]) -> list[list[Heatmap]]:
    return [
        [replace(one, map=drawn) for one, drawn in zip(*rows, strict=True)]
        for rows in zip(found, maps, strict=True)
    ]


def in_box(box: shape_network.Box) -> Tensor:
    drawn = torch.zeros(16, 16)
    left, top, right, bottom = (round(edge / 4) for edge in box)
    drawn[top:bottom, left:right] = 1 + torch.rand(bottom - top, right - left)
    return drawn


def means(evaluations: list[list[Evaluation]]) -> dict[str, float]:
    rows = [vars(one) for one in flat(evaluations)]
    return {key: fmean(float(row[key]) for row in rows) for key in rows[0]}


def test_a_map_of_the_right_shape_scores_better_than_one_of_the_wrong_and_a_random_one(scenes):
    network, x = shape_network.trained(), shape_network.batch(scenes)
    found = gradcams(network, x, asked(scenes))
    torch.manual_seed(0)
    boxes = [list(scene.boxes.values()) for scene in scenes]
    candidates = {
        "right": [[in_box(one) for one in pair] for pair in boxes],
        "wrong": [[in_box(one) for one in reversed(pair)] for pair in boxes],
        "random": [[torch.rand(16, 16) for _ in pair] for pair in boxes],
    }
    judge = evaluator(network)
    scores = {
        kind: means(judge.evaluations(network, x, with_maps(found, maps)))
        for kind, maps in candidates.items()
    }
    for kind, numbers in scores.items():
        print(kind, {key: round(value, 3) for key, value in numbers.items()})
    right, wrong, random = scores.values()
    for other in (wrong, random):
        assert right["deletion_auc"] < other["deletion_auc"] - 0.1
        assert right["insertion_auc"] > other["insertion_auc"] + 0.1
    # A random map leaves half of every pixel, which costs this network little: not what tells it.
    assert right["average_drop"] < wrong["average_drop"] - 0.1


def edges(network: nn.Module, x: Tensor, classes: Tensor) -> list[list[Heatmap]]:
    """What looks like an explanation and never asks the network."""
    grey = x.mean(1, keepdim=True)
    kernel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    both = torch.stack([kernel, kernel.T])[:, None]
    strength = functional.conv2d(grey, both, padding=1).norm(dim=1)
    maps = functional.avg_pool2d(strength[:, None], 4)[:, 0]
    return with_maps(gradcams(network, x, classes), [[one] * classes.shape[1] for one in maps])


def test_the_randomisation_check_flags_an_edge_detector_and_passes_gradcam(scenes):
    network, x = shape_network.trained(), shape_network.batch(scenes)
    classes = asked(scenes)
    by_edges = flat(evaluator(network, edges).evaluations(network, x, edges(network, x, classes)))
    assert all(one.randomised_all == pytest.approx(1) for one in by_edges)
    assert all(one.randomised_head == pytest.approx(1) for one in by_edges)
    assert {trust(vars(one)).label for one in by_edges} == {"do not read"}

    by_gradcam = flat(evaluator(network).evaluations(network, x, gradcams(network, x, classes)))
    flagged = [one for one in by_gradcam if trust(vars(one)).level == "bad"]
    print(f"random weights: {fmean(one.randomised_all for one in by_gradcam):.3f}")
    assert not flagged
    assert abs(fmean(one.randomised_all for one in by_gradcam)) < 0.3


def test_eigencam_is_not_about_the_class(scenes):
    network, x = shape_network.trained(), shape_network.batch(scenes[:6])

    def eigencams(network: nn.Module, x: Tensor, classes: Tensor) -> list[list[Heatmap]]:
        return explain(
            network, x, layers=[shape_network.LAYER], classes=classes, methods=("eigencam",)
        )

    found = eigencams(network, x, asked(scenes[:6]))
    for one in flat(evaluator(network, eigencams).evaluations(network, x, found)):
        assert one.randomised_head == pytest.approx(1)
        assert trust(vars(one)).label in ("not about the class", "do not read")


def test_deletion_and_insertion_follow_the_network_at_every_step(scenes):
    """A network that sees one pixel loses everything when that pixel goes, and not before."""

    class OnePixel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.same = nn.Conv2d(3, 3, 1, bias=False)
            self.same.weight.data = torch.eye(3)[:, :, None, None]

        def forward(self, x: Tensor) -> Tensor:
            seen = self.same(x)[:, 0, 2, 3]
            return torch.stack([100 * (seen - 0.5), torch.zeros_like(seen)], dim=1)

    network = OnePixel().eval()
    x = torch.zeros(1, 3, 4, 8)
    x[0, :, 2, 3] = 1
    question = Question(addresses_of(network, ["same"]))

    def judged(heatmap: Tensor) -> Evaluation:
        found = explain(network, x, layers=["same"], classes=[0])
        maps = with_maps(found, [[heatmap]])
        judge = Evaluator(
            lambda net, x, classes: explain(net, x, layers=["same"], classes=classes), question
        )
        return judge.evaluations(network, x, maps)[0][0]

    ranks = torch.arange(32.0).flip(0)
    hot = torch.zeros(4, 8)
    hot.view(-1)[torch.randperm(32, generator=torch.Generator().manual_seed(0))] = ranks / 32
    for place, gone_after in ((31, 1), (16, 8), (0, 16)):  # two pixels go at each of 16 steps
        heatmap = hot.clone()
        other = (heatmap == place / 32).nonzero()[0]
        held = heatmap[2, 3].clone()
        heatmap[2, 3], heatmap[other[0], other[1]] = place / 32, held
        one = judged(heatmap)
        # The curve is 1 until the pixel goes and 0 from then on.
        assert one.deletion_auc == pytest.approx((gone_after - 0.5) / 16, abs=1e-3)
        # Until it comes back the blurred picture shows less than half of it.
        assert one.insertion_auc == pytest.approx(1 - (gone_after - 0.5) / 16, abs=1e-3)


def test_the_cost_is_forty_passes_a_map_at_most(scenes):
    network, x = shape_network.trained(), shape_network.batch(scenes[:2])
    rows = 0

    def count(module: nn.Module, args: tuple[Tensor, ...]) -> None:
        nonlocal rows
        rows += len(args[0])

    found = gradcams(network, x, asked(scenes[:2]))
    judge = evaluator(network)
    judge.evaluations(network, x, found)  # the first time it looks for the head too
    handle = network.register_forward_pre_hook(count)
    judge.evaluations(network, x, found)
    handle.remove()
    assert PASSES <= 40
    assert rows <= PASSES * 4  # two pictures, two classes each


def test_maps_that_show_nothing_are_not_judged(scenes):
    network, x = shape_network.trained(), shape_network.batch(scenes[:1])
    found = gradcams(network, x, asked(scenes[:1]))
    empty = with_maps(found, [[torch.zeros(16, 16), found[0][1].map]])
    first, second = evaluator(network).evaluations(network, x, empty)[0]
    assert first == Evaluation()
    assert None not in vars(second).values()


def test_the_network_is_left_as_it_was_and_numbers_repeat(scenes):
    network, x = small_network.small(), small_network.pictures()
    network.train()
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    own = state(network)

    def maps(network: nn.Module, x: Tensor, classes: Tensor) -> list[list[Heatmap]]:
        return explain(network, x, layers=["last"], classes=classes)

    found = explain(network, x, layers=["last"], classes=[1, 3])
    question = Question(addresses_of(network, ["last"]))
    random = torch.get_rng_state()
    once = Evaluator(maps, question).evaluations(network, x, found)
    again = Evaluator(maps, question).evaluations(network, x, found)
    assert once == again
    assert torch.equal(torch.get_rng_state(), random)
    assert network.training
    assert all(tensor is own[name] for name, tensor in state(network).items())
    assert all(torch.equal(network.state_dict()[name], value) for name, value in before.items())
    assert not any(parameter.requires_grad for parameter in network.parameters())
    assert not network._forward_hooks
    # Another seed draws other weights.
    other = Evaluator(maps, replace(question, seed=77)).evaluations(network, x, found)
    pairs = list(zip(flat(once), flat(other), strict=True))
    assert any(a.randomised_all != b.randomised_all for a, b in pairs)
    assert all(a.deletion_auc == b.deletion_auc for a, b in pairs)


class Whimsical(nn.Module):
    """Which of its layers run depends on its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.ones(()))
        self.deep, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return (self.deep if self.gate > 0 else self.other)(x).mean((2, 3))


def test_a_layer_that_random_weights_do_not_reach_has_no_likeness():
    network, x = Whimsical().eval(), torch.rand(2, 3, 8, 8)

    def at_deep(network: nn.Module, x: Tensor, classes: Tensor) -> list[list[Heatmap]]:
        if network.gate is not own:  # as random weights might have it
            network.gate.data.fill_(-1)
        return explain(network, x, layers=["deep"], classes=classes)

    own = network.gate
    found = explain(network, x, layers=["deep"], classes=[1])
    judged = Evaluator(at_deep, Question(addresses_of(network, ["deep"])))
    for one in flat(judged.evaluations(network, x, found)):
        assert one.randomised_all is None
        assert one.randomised_head is not None
        assert 0 <= one.average_drop <= 1
