"""What the shell can offer for a flag's value: names from the libraries and from the line's model.

Every start of a command reads this file, so it imports nothing; what it needs, it fetches when
it is asked. The context's values are texts, not checked yet. It may raise: nobody will see it.
"""

# No postponed annotations: typer reads them at every start.
from typing import Any

from typer import Context

# Those of hookscope.maps.cam, which imports torch; a test holds the two together.
METHODS = (
    *("gradcam", "gradcam++", "hirescam", "xgradcam", "layercam", "eigencam", "eigengradcam"),
    *("scorecam", "ablationcam"),
)


def model_names(incomplete: str) -> list[str]:
    """torchvision's names; timm's once the word can only be one of them."""
    from hookscope.cli.completion.sources import has, library

    if not incomplete:
        return [*library("torchvision"), *(["timm:"] if has("timm") else [])]
    if not incomplete.startswith("timm:"[: len(incomplete)]):
        return list(library("torchvision"))
    if "." not in incomplete:
        return [f"timm:{name}" for name in library("timm")]
    return [f"timm:{name}.{tag}" for name, tags in library("timm").items() for tag in tags]


def weights_names(ctx: Context) -> list[str]:
    """The entries of the line's model."""
    from hookscope.cli.completion.sources import library

    model = ctx.params["model"]
    if model.startswith("timm:"):
        entries = library("timm").get(model[len("timm:") :].partition(".")[0])
    elif _is_plain(model):
        entries = library("torchvision").get(model.lower())
    else:
        return ["none"]
    return [] if entries is None else ["DEFAULT", *entries, "none"]


def layer_names(ctx: Context) -> list[str]:
    """The layers of the line's model, in its own order."""
    return list(_network(ctx)["layers"])


def type_names(ctx: Context) -> list[str]:
    """The classes of the modules in the line's model."""
    return sorted(set(_network(ctx)["layers"].values()))


def class_names(ctx: Context) -> list[str]:
    """What the line's ``--labels`` or model call their classes."""
    if ctx.params.get("labels") is not None:
        from hookscope.models.labels import read_labels

        names = read_labels(ctx.params["labels"]).names
    else:
        names = _network(ctx)["classes"]
    return [name for name in dict.fromkeys(names) if name]


def colormap_names() -> list[str]:
    """matplotlib's colormaps."""
    from hookscope.cli.completion.sources import colormaps

    return colormaps()


def method_names() -> list[str]:
    """The ways to a heatmap."""
    return list(METHODS)


def _is_plain(model: str) -> bool:
    """Whether a MODEL argument can only be a name of torchvision's."""
    from pathlib import Path

    return ":" not in model and not Path(model).suffix and not Path(model).is_file()


def _network(ctx: Context) -> dict[str, Any]:
    """``layers`` (name -> class) and ``classes`` (their names) of the line's model."""
    from hookscope.cli.completion.sources import library, network

    model = ctx.params["model"]
    if _is_plain(model) and model.lower() not in library("torchvision"):
        return {"layers": {}, "classes": []}
    names = ("weights", "checkpoint", "checkpoint_key", "model_arg", "allow_missing")
    classes = ctx.params["num_classes"]
    flags = {name: ctx.params[name] for name in names}
    return network(model, {**flags, "num_classes": int(classes) if classes else None})
