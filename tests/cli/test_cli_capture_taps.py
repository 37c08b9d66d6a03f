"""capture --what: gradients, inputs and attention, from the command line to the files."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pytest
import torch
from pictures import open_image
from torch import Tensor
from torch.nn import functional

from hookscope.hooks.rollout import rollout
from hookscope.models.opening import open_model
from hookscope.render.grid import feature_grid
from hookscope.render.levels import LEVELS
from hookscope.render.palette import lut

TRANSFORMERS = """
    import torch
    from torch import nn
    from torchvision.models import SwinTransformer, VisionTransformer


    def vit():
        torch.manual_seed(0)
        model = VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=7)
        nn.init.normal_(model.heads.head.weight)
        return model


    def swin():
        torch.manual_seed(0)
        return SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4], num_classes=7)
"""
SMALL = ("--resize", "32x32", "--crop", "none")


@pytest.fixture(scope="module")
def transformers(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("transformers") / "transformers.py"
    path.write_text(textwrap.dedent(TRANSFORMERS))
    return str(path)


@pytest.fixture
def captured(hookscope, photo, tmp_path) -> Any:
    """The records of a successful ``capture`` of the photo, raw tensors included."""

    def command(*arguments: object) -> list[dict[str, Any]]:
        ran = hookscope(
            "capture", photo, "-o", tmp_path / "out", "--save", "npy", "--json", *arguments
        )
        assert ran.code == 0, ran.err
        return ran.records

    return command


def tensor_of(record: dict[str, Any]) -> Tensor:
    return torch.from_numpy(np.load(record["files"]["tensor"]))


def name_of(record: dict[str, Any], kind: str) -> str:
    return record["files"][kind].rpartition("/")[2]


def gradients(net: str, photo: Any, loss: Any) -> dict[str, Tensor]:
    """By plain autograd, of the network without in-place operations."""
    opened = open_model(net)
    opened.module.relu.inplace = False
    kept: dict[str, Tensor] = {}
    for name in ("norm", "second", "head"):

        def keep(module: Any, args: Any, output: Tensor, name: str = name) -> None:
            output.retain_grad()
            kept[name] = output

        opened.module.get_submodule(name).register_forward_hook(keep)
    x, _ = opened.preprocessing(open_image(photo))
    loss(opened.module(x[None])).backward()
    return {name: tensor.grad[0] for name, tensor in kept.items() if tensor.grad is not None}


def test_gradients_of_a_class_equal_autograd(captured, net, photo):
    expected = gradients(net, photo, lambda logits: logits[0, 2])
    records = captured(
        "-m", net, "-l", "norm", "-l", "second", "-l", "head", "--what", "gradient", "--class", 2
    )
    for record in records:
        torch.testing.assert_close(
            tensor_of(record), expected[record["layer"]], atol=1e-7, rtol=1e-4
        )
        assert (record["what"], record["class_index"]) == ("gradient", 2)
        assert record["min"] == pytest.approx(float(expected[record["layer"]].min()), rel=1e-4)
    assert [name_of(record, "grid") for record in records] == [
        *("net_norm_cat_gradient.png", "net_second_cat_gradient.png", "net_head_cat_gradient.png"),
    ]
    assert name_of(records[0], "tensor") == "net_norm_cat_gradient.npy"


def test_gradients_of_the_predicted_class_and_of_cross_entropy(captured, net, photo):
    (predicted,) = captured("-m", net, "-l", "second", "--what", "gradient")
    index = predicted["class_index"]
    expected = gradients(net, photo, lambda logits: logits[0].amax())
    torch.testing.assert_close(tensor_of(predicted), expected["second"], atol=1e-7, rtol=1e-4)
    assert 0 < predicted["probability"] < 1

    def loss(logits: Tensor) -> Tensor:
        return functional.cross_entropy(logits, torch.tensor([1]))

    (record,) = captured(
        "-m", net, "-l", "second", "--what", "gradient", "--loss", "cross-entropy", "--class", 1
    )
    torch.testing.assert_close(
        tensor_of(record), gradients(net, photo, loss)["second"], atol=1e-7, rtol=1e-4
    )
    assert record["loss"] == pytest.approx(-np.log(record["probability"]), rel=1e-4)
    assert index != 1


def test_a_gradient_is_drawn_on_one_scale_symmetric_about_zero(captured, net):
    (record,) = captured("-m", net, "-l", "second", "--what", "gradient", "--no-annotate")
    picture, gradient = open_image(record["files"]["grid"]), tensor_of(record).numpy()
    reach = float(np.abs(gradient).max())
    # One more channel, of which the ends and the middle of the scale are known.
    known = np.zeros_like(gradient[:1])
    known[0, 0, :2] = -reach, reach
    with_known = feature_grid(
        np.concatenate([gradient, known]), normalize="layer", diverging=True, annotate=False, cols=4
    )
    levels, more = np.asarray(picture), np.asarray(with_known)
    assert np.array_equal(more[: levels.shape[0]], levels)
    tile = more[levels.shape[0] :]
    assert {0, (LEVELS - 1) // 2, LEVELS - 1} <= set(np.unique(tile).tolist())
    assert picture.getpalette()[: 3 * LEVELS] == lut("RdBu_r", LEVELS).ravel().tolist()


def test_an_input_is_what_came_before_the_inplace_change(captured, net):
    (norm,) = captured("-m", net, "-l", "norm")
    given = captured("-m", net, "-l", "relu@1", "-l", "head", "--what", "input")
    assert [name_of(record, "grid") for record in given] == [
        *("net_relu@1_cat_input.png", "net_head_cat_input.png"),
    ]
    assert torch.equal(tensor_of(given[0]), tensor_of(norm))
    assert (given[0]["layout"], given[1]["layout"]) == ("NCHW", "vector")
    assert given[0]["min"] < 0


def test_attention_is_a_panel_a_head_and_rows_over_the_picture(captured, transformers, photo):
    records = captured("-m", f"{transformers}:vit", *SMALL, "--what", "attention")
    assert [record["layer"] for record in records] == [
        f"encoder.layers.encoder_layer_{number}.self_attention" for number in range(2)
    ]
    for record in records:
        weights = tensor_of(record)
        assert weights.shape == (4, 17, 17)
        torch.testing.assert_close(weights.sum(-1), torch.ones(4, 17))
        assert record["shape"] == [4, 17, 17]
    end = "self_attention_cat_attention"
    assert name_of(records[0], "grid").endswith(f"{end}.png")
    assert name_of(records[0], "sheet").endswith(f"{end}_sheet.png")
    wide, high = open_image(records[0]["files"]["sheet"]).size
    assert wide > 4 * open_image(photo).width, "the picture and four heads, side by side"
    assert high < wide


def test_heads_are_chosen_like_channels(captured, transformers):
    def size(*flags: str) -> tuple[int, int]:
        (record, _) = captured(
            "-m", f"{transformers}:vit", *SMALL, "--what", "attention", *flags, "--no-annotate"
        )
        return open_image(record["files"]["grid"]).size

    one = size("--channels", "2")
    assert size("--reduce", "mean") == one == size("--top", "1")
    assert size() > one


def test_rollout_is_the_product_of_the_layers_over_the_picture(captured, transformers, photo):
    model = f"{transformers}:vit"
    layers = captured("-m", model, *SMALL, "--what", "attention")
    (record,) = captured("-m", model, *SMALL, "--what", "attention", "--rollout")
    expected = rollout([tensor_of(layer)[None] for layer in layers])[0]
    torch.testing.assert_close(tensor_of(record), expected)
    assert name_of(record, "grid").endswith("_1.self_attention_cat_attention_rollout.png")
    assert record["layers"] == [layer["layer"] for layer in layers]
    assert open_image(record["files"]["grid"]).size == open_image(photo).size


def test_windows_keep_their_axis(captured, transformers, hookscope, photo, tmp_path):
    model = f"{transformers}:swin"
    records = captured("-m", model, *SMALL, "-l", "features.1", "--what", "attention")
    assert [record["shape"] for record in records] == [[4, 2, 16, 16]] * 2
    assert all("sheet" not in record["files"] for record in records)
    ran = hookscope(
        "capture", photo, "-m", model, *SMALL, "--what", "attention", "--rollout", "-o", tmp_path
    )
    assert (ran.code, ran.out) == (2, "")
    assert "rollout" in ran.err


@pytest.mark.parametrize(
    "question",
    [
        ("-l", "second", "--what", "gradient"),
        ("-l", "second", "--what", "input"),
        ("-l", "lay*", "--what", "attention"),
        ("-l", "lay*", "--what", "attention", "--rollout"),
    ],
)
def test_what_was_made_before_is_skipped(captured, net, transformers, question):
    model = ("-m", net)
    if "attention" in question:
        model, question = ("-m", f"{transformers}:vit", *SMALL), question[2:]
    once = captured(*model, *question)
    again = captured(*model, *question, "--skip-existing")
    assert {record["status"] for record in once} == {"ok"}
    assert {record["status"] for record in again} == {"skipped"}
    assert [record["files"] for record in again] == [record["files"] for record in once]
    if "gradient" in question:
        (other,) = captured(*model, *question, "--skip-existing", "--class", "0")
        assert other["status"] == "ok"


def test_a_layer_without_a_gradient_is_said(captured, net, hookscope, photo, tmp_path):
    ran = hookscope(
        "capture", photo, "-m", net, "-l", "spare", "--what", "gradient", "-o", tmp_path, "--json"
    )
    assert ran.code == 1
    (record,) = ran.records
    assert record["error"].startswith("layer spare never runs")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--class", "1"], "--what gradient"),
        (["--loss", "cross-entropy"], "--what gradient"),
        (["--output-key", "out"], "--what gradient"),
        (["--rollout"], "--what attention"),
        (["--what", "gradient", "--class", "1", "--class", "2"], "one class"),
        (["--what", "gradient", "--class", "5"], "classes 0 to 4"),
        (["--what", "gradient", "--class", "-1"], "-1"),
        (["--what", "gradient", "--output-key", "none"], "one tensor"),
        (["--what", "attention"], "attention"),
        (["--stats", "--tensorboard", "x"], "--tensorboard"),
        (["--stats", "--save", "npy"], "--save"),
    ],
)
def test_what_cannot_be_meant(hookscope, net, photo, tmp_path, flags, said):
    ran = hookscope("capture", photo, "-m", net, "-l", "second", "-o", tmp_path / "out", *flags)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert not list(tmp_path.glob("out/*.png"))


def test_real_weights_name_the_class(captured, mobilenet_weights):
    (record,) = captured(
        "-m", "mobilenet_v2", "-w", "IMAGENET1K_V1", "-l", "features.17", "--what", "gradient",
        "--class", "Egyptian cat",
    )  # fmt: skip
    assert (record["class_index"], record["class_name"]) == (285, "Egyptian cat")
    assert record["zero_fraction"] < 0.5
