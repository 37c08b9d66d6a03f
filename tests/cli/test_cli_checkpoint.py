"""A user's checkpoint on the command line: the account, the doctor, the refusal."""

from __future__ import annotations

import pytest
import torch
import torchvision


@pytest.fixture(scope="module")
def best(tmp_path_factory):
    """A ResNet-18 of four classes as a training loop saves it."""
    torch.manual_seed(3)
    network = torchvision.models.resnet18(num_classes=4)
    state = {f"module.{name}": tensor for name, tensor in network.state_dict().items()}
    path = tmp_path_factory.mktemp("runs") / "best.pth"
    torch.save({"epoch": 7, "state_dict": state, "classes": ["cat", "dog", "bird", "fish"]}, path)
    return path


def test_the_doctor_prints_the_account(hookscope, best):
    ran = hookscope("list-layers", "resnet18", "--checkpoint", best, "--format", "names")
    assert ran.code == 0
    assert "fc" in ran.lines
    (line,) = ran.err.splitlines()
    for part in ("best.pth", "state_dict", "module.", "122 loaded", "0 missing", "0 unexpected"):
        assert part in line


def test_the_head_and_the_class_names_come_from_the_file(hookscope, best, photo, tmp_path):
    ran = hookscope("gradcam", photo, "-c", best, "--class", "bird", "-o", tmp_path, "--json")
    assert ran.code == 0
    (record,) = ran.records
    assert (record["model"], record["weights"]) == ("resnet18-best", "best.pth")
    assert (record["class_index"], record["class_name"]) == (2, "bird")
    assert record["files"]["overlay"].endswith("resnet18-best_layer4_cat_gradcam_2-bird.png")
    assert record["checkpoint"]["prefix"] == "module."
    assert record["checkpoint"]["loaded"] == 122


def test_other_weights_are_not_skipped(hookscope, best, photo, tmp_path):
    other = tmp_path / "other" / "best.pth"
    other.parent.mkdir()
    document = torch.load(best, weights_only=True)
    document["state_dict"]["module.fc.bias"] += 1
    torch.save(document, other)
    command = ("gradcam", photo, "-o", tmp_path / "o", "--json", "--skip-existing", "--class", "0")
    assert hookscope(*command, "-c", best).records[0]["status"] == "ok"
    assert hookscope(*command, "-c", best).records[0]["status"] == "skipped"
    assert hookscope(*command, "-c", other).records[0]["status"] == "ok"


def test_a_file_of_another_model_is_refused_and_the_right_one_named(hookscope, tmp_path, photo):
    path = tmp_path / "who.pth"
    torch.save(torchvision.models.resnet34(num_classes=7).state_dict(), path)
    ran = hookscope("gradcam", photo, "-c", path, "-o", tmp_path / "o")
    assert (ran.code, ran.out) == (2, "")
    assert "--model resnet34" in ran.err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>404</html>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
    ],
)
def test_what_is_no_checkpoint_says_what_it_is(hookscope, tmp_path, content):
    path = tmp_path / "best.pth"
    path.write_bytes(content)
    ran = hookscope("list-layers", "resnet18", "--checkpoint", path)
    assert (ran.code, ran.out) == (2, "")
    assert "Traceback" not in ran.err
    assert "best.pth" in ran.err


def test_the_real_file_also_through_checkpoint(hookscope, mobilenet_weights, chelsea, tmp_path):
    ran = hookscope(
        "gradcam", chelsea, "-m", "mobilenet_v2", "-c", mobilenet_weights, "-o", tmp_path, "--json"
    )
    (record,) = ran.records
    # Fed as torchvision's DEFAULT entry asks, which is not the preset of this entry.
    assert record["class_index"] == 285
    assert record["probability"] > 0.5
