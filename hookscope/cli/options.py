"""Every flag of every command, written once, in the groups that the help shows.

A command names the groups that it takes as parameters; see ``spreading``.
"""

# No postponed annotations here: typer would compile each of a hundred strings at every start.
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Option

from hookscope.cli.completion.values import layer_names, model_names, type_names, weights_names


def _drawable(wanted: bool) -> bool:
    if wanted:
        from hookscope.cli.showing import require_library

        require_library()
    return wanted


def _flag(panel: str, *names: str, help: str, **more: Any) -> Any:
    # Text in brackets would be taken for markup by the help's renderer.
    return Option(*names, help=help.replace("[", r"\["), rich_help_panel=panel, **more)


@dataclass(frozen=True)
class ModelName:
    """Which network, for the commands whose arguments are pictures."""

    model: Annotated[
        str,
        _flag(
            "Model",
            "--model",
            "-m",
            help="torchvision name, timm:NAME, path/to/net.py:factory, package.module:factory, "
            "or a torch.export archive.",
            envvar="HOOKSCOPE_MODEL",
            metavar="SPEC",
            autocompletion=model_names,
        ),
    ] = "resnet18"


@dataclass(frozen=True)
class ModelFlags:
    """With which weights, on which device."""

    weights: Annotated[
        str | None,
        _flag(
            "Model",
            "--weights",
            "-w",
            help="A torchvision weights name (DEFAULT, IMAGENET1K_V1, ...) or 'none' for random "
            "ones. Default: DEFAULT, or none with --checkpoint.",
            metavar="NAME",
            autocompletion=weights_names,
        ),
    ] = None
    checkpoint: Annotated[
        Path | None,
        _flag(
            "Model", "--checkpoint", "-c", help="Your own weights for the model.", metavar="FILE"
        ),
    ] = None
    checkpoint_key: Annotated[
        str | None,
        _flag("Model", "--checkpoint-key", help="Which part of the checkpoint.", metavar="KEY"),
    ] = None
    num_classes: Annotated[
        int | None,
        _flag(
            "Model", "--num-classes", help="Default: read off the checkpoint.", metavar="N", min=1
        ),
    ] = None
    model_arg: Annotated[
        list[str] | None,
        _flag(
            "Model",
            "--model-arg",
            help="An argument for the model's constructor, as JSON or text. Repeatable.",
            metavar="KEY=VALUE",
        ),
    ] = None
    allow_missing: Annotated[
        bool,
        _flag("Model", "--allow-missing", help="Accept a checkpoint that lacks some parameters."),
    ] = False
    unsafe_load: Annotated[
        bool,
        _flag("Model", "--unsafe-load", help="Unpickle the checkpoint: runs code from the file."),
    ] = False
    labels: Annotated[
        Path | None,
        _flag(
            "Model",
            "--labels",
            help="Class names: one a line, or JSON (a list, or index -> name).",
            metavar="FILE",
        ),
    ] = None
    device: Annotated[
        str,
        _flag(
            "Model",
            "--device",
            help="auto, cpu, cuda, cuda:N or mps. auto: CUDA, then MPS, then CPU.",
            envvar="HOOKSCOPE_DEVICE",
            metavar="NAME",
        ),
    ] = "auto"
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"],
        _flag("Model", "--precision", help="Autocast of the forward pass; maps stay in fp32."),
    ] = "fp32"
    seed: Annotated[int, _flag("Model", "--seed", help="Seed of whatever is random.")] = 0
    offline: Annotated[
        bool,
        _flag(
            "Model",
            "--offline",
            help="Never open a network connection.",
            envvar="HOOKSCOPE_OFFLINE",
        ),
    ] = False


@dataclass(frozen=True)
class PreprocessingFlags:
    """What is done to a picture before the network sees it; None keeps the weights' own."""

    resize: Annotated[
        str | None,
        _flag(
            "Preprocessing",
            "--resize",
            help="N (the shorter side), HxW (stretch) or none.",
            metavar="SIZE",
        ),
    ] = None
    crop: Annotated[
        str | None,
        _flag("Preprocessing", "--crop", help="Centre crop: N, HxW or none.", metavar="SIZE"),
    ] = None
    mean: Annotated[
        str | None, _flag("Preprocessing", "--mean", help="Per channel.", metavar="A,B,C")
    ] = None
    std: Annotated[
        str | None, _flag("Preprocessing", "--std", help="Per channel.", metavar="A,B,C")
    ] = None
    interpolation: Annotated[
        Literal["bilinear", "bicubic", "nearest"] | None,
        _flag("Preprocessing", "--interpolation", help="Default: what the weights ask for."),
    ] = None


@dataclass(frozen=True)
class LayerFlags:
    """Which layers."""

    layer: Annotated[
        list[str] | None,
        _flag(
            "Layers",
            "--layer",
            "-l",
            help="A name (with @N for its Nth call, [i] for an item of its output), "
            "or a glob: 'layer4.*'. Repeatable.",
            metavar="PATTERN",
            autocompletion=layer_names,
        ),
    ] = None
    type: Annotated[
        list[str] | None,
        _flag(
            "Layers",
            "--type",
            "-t",
            help="Only modules of this class. Repeatable.",
            metavar="CLASS",
            autocompletion=type_names,
        ),
    ] = None


@dataclass(frozen=True)
class OutputFlags:
    """Where results go, and what happens to those that are there already."""

    out: Annotated[
        Path,
        _flag("Output", "--out", "-o", help="Folder.", envvar="HOOKSCOPE_OUT", metavar="DIR"),
    ] = Path("hookscope-out")
    json: Annotated[
        bool, _flag("Output", "--json", help="One JSON object a line instead of paths.")
    ] = False
    save: Annotated[
        Literal["npy", "npz", "safetensors", "pt"] | None,
        _flag("Output", "--save", help="Write the raw tensors too."),
    ] = None
    skip_existing: Annotated[
        bool,
        _flag(
            "Output",
            "--skip-existing",
            help="Skip what was made from the same picture, weights and settings.",
        ),
    ] = False
    no_clobber: Annotated[
        bool, _flag("Output", "--no-clobber", help="Replace nothing: each is an error.")
    ] = False
    force: Annotated[
        bool,
        _flag("Output", "--force", help="Replace files of other pictures or programs too."),
    ] = False
    dry_run: Annotated[
        bool, _flag("Output", "--dry-run", help="Print what would be written; write nothing.")
    ] = False
    report: Annotated[
        bool,
        _flag(
            "Output",
            "--report",
            help="Write index.html: a page to leaf through, filter and sort all that the folder "
            "holds, earlier runs included.",
        ),
    ] = False
    show: Annotated[
        bool,
        _flag(
            "Output",
            "--show",
            help="Draw each result on the terminal too (extra: show).",
            callback=_drawable,
        ),
    ] = False


@dataclass(frozen=True)
class RunFlags:
    """How the run goes through its pictures."""

    recursive: Annotated[
        bool, _flag("Run", "--recursive", "-r", help="Folders with their sub-folders.")
    ] = False
    null: Annotated[
        bool, _flag("Run", "-0", "--null", help="The list on stdin is separated by NUL.")
    ] = False
    batch_size: Annotated[
        int | None,
        _flag("Run", "--batch-size", help="Default: by device.", metavar="N", min=1),
    ] = None
    shard: Annotated[
        str | None,
        _flag("Run", "--shard", help="Only the Ith of N shares of the inputs.", metavar="I/N"),
    ] = None
    fail_fast: Annotated[bool, _flag("Run", "--fail-fast", help="Stop at the first failure.")] = (
        False
    )
    strict: Annotated[
        bool, _flag("Run", "--strict", help="Count degenerate results as failures.")
    ] = False


@dataclass(frozen=True)
class TalkFlags:
    """How much is said on stderr."""

    quiet: Annotated[bool, _flag("Run", "--quiet", "-q", help="Errors only.")] = False
    verbose: Annotated[
        bool, _flag("Run", "--verbose", "-v", help="One line a stage with its time.")
    ] = False
    debug: Annotated[bool, _flag("Run", "--debug", help="Tracebacks.")] = False
