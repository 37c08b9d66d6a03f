"""One picture, from the file to what the network is fed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from PIL import Image
from torch import Tensor

from hookscope.images.decode import read_picture
from hookscope.models.preprocess import Geometry, Preprocessing
from hookscope.output.names import Sample
from hookscope.run.clock import Clock

Known = TypeVar("Known")


@dataclass(frozen=True)
class Prepared:
    """A picture ready for the network.

    ``tensor`` is C x H x W, float32, normalised; ``geometry`` leads from it back to ``image``,
    the picture as it was found; ``sha256`` is that of the file; ``note`` says what was odd.
    """

    sample: Sample
    image: Image.Image
    sha256: str
    tensor: Tensor
    geometry: Geometry
    note: str | None = None


def prepare(
    sample: Sample,
    preprocessing: Preprocessing,
    clock: Clock,
    known: Callable[[Sample, str], Known | None],
) -> Prepared | Known:
    """Read, decode and preprocess one picture.

    ``known(sample, sha256)`` gives the result of a picture that needs no work, such as its records;
    then nothing is decoded. Raises ``PictureError``.
    """
    sample.source.check()
    with clock.stage("decode"):
        file = read_picture(sample.source.path)
        result = known(sample, file.sha256)
        if result is not None:
            return result
        picture = file.decode()
    with clock.stage("preprocess"):
        tensor, geometry = preprocessing(picture.image)
    return Prepared(sample, picture.image, picture.sha256, tensor, geometry, picture.note)
