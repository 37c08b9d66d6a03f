"""Every model of torchvision: probed without a crash, a download, or memory for parameters."""

from __future__ import annotations

import inspect
import os
import re
import resource
import warnings

import pytest
from torch import nn
from torchvision import models

from hookscope.layers.listing import describe
from hookscope.layers.probe import probe
from hookscope.models.structure import without_initialisation

# Of each family the smallest; the others, a minute in all, with HOOKSCOPE_GIANTS=1.
SMALLEST = frozenset((
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s",
    "googlenet", "inception_v3", "maxvit_t", "mnasnet0_5", "mobilenet_v2",
    "mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "resnet18",
    "shufflenet_v2_x0_5", "squeezenet1_0", "swin_t", "swin_v2_t", "vgg11",
    "vit_b_16", "deeplabv3_mobilenet_v3_large",
    "lraspp_mobilenet_v3_large", "fasterrcnn_mobilenet_v3_large_320_fpn",
    "ssd300_vgg16",
    "fcos_resnet50_fpn", "raft_small", "r3d_18", "s3d", "mvit_v1_b",
    "quantized_mobilenet_v2", "regnet_y_128gf", "vit_h_14",
))  # fmt: skip

# Name -> the default layer, as the first pattern that fits says.
DEFAULTS = {
    r"(wide_)?res?ne[x]?t\d.*": "layer4",
    r"alexnet|vgg.*|densenet.*|mobilenet.*|efficientnet.*|convnext.*": "features",
    r"mnasnet.*": "layers",
    r"inception_v3": "Mixed_7c",
    r"googlenet": "inception5b",
    r"regnet.*": "trunk_output",
    r"shufflenet.*": "conv5",
    r"squeezenet.*": "classifier.2",
    r"swin_.*": "norm",
    r"maxvit_t": "blocks.3",
    r"vit_b_.*": "encoder.layers.encoder_layer_11.ln_1",
    r"vit_l_.*": "encoder.layers.encoder_layer_23.ln_1",
    r"vit_h_14": "encoder.layers.encoder_layer_31.ln_1",
    r"(deeplab|fcn|lraspp).*": "classifier",
}

names = [
    pytest.param(
        name,
        marks=[]
        if name in SMALLEST
        else [
            pytest.mark.giants,
            pytest.mark.skipif(
                "HOOKSCOPE_GIANTS" not in os.environ,
                reason="a larger one of its family; set HOOKSCOPE_GIANTS=1",
            ),
        ],
    )
    for name in models.list_models()
]


def build(name: str) -> nn.Module:
    builder = models.get_model_builder(name)
    options = {"weights": None}
    if "weights_backbone" in inspect.signature(builder).parameters:
        options["weights_backbone"] = None
    if re.search("googlenet|inception", name):
        options["init_weights"] = False
    with without_initialisation(), warnings.catch_warnings():
        # The quantized builders warn of their own module's move.
        warnings.simplefilter("ignore")
        return builder(**options)


def peak_mebibytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@pytest.mark.parametrize("name", names)
def test_every_model_is_probed_whole(name: str) -> None:
    model = build(name)
    before = peak_mebibytes()
    found = probe(model)
    assert found.problem is None
    assert peak_mebibytes() - before < 30
    rows = {row.name: row for row in describe(model, found)}
    assert all(row.calls is not None for row in rows.values())
    assert all(row.output_shape is None for row in rows.values() if row.calls == 0)
    plain = name.removeprefix("quantized_")
    expected = next((layer for form, layer in DEFAULTS.items() if re.fullmatch(form, plain)), None)
    if expected is not None:
        assert found.cam_default == expected
    if found.cam_default is not None:
        (default,) = [i for i in found.tensors if str(i.address) == found.cam_default]
        assert default.layout.spatial
    if name in models.list_models(module=models):
        assert found.cam_default is not None
        assert all(row.output_shape is not None for row in rows.values() if row.calls)


def test_all_eighty_classifiers_have_an_expected_layer() -> None:
    classifiers = models.list_models(module=models)
    assert len(classifiers) >= 80
    for name in classifiers:
        assert any(re.fullmatch(form, name) for form in DEFAULTS), name
