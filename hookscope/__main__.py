"""``python -m hookscope`` and the console script: the same door."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    # There is no garbage while modules are imported and networks built, only a lot to look
    # through: a tenth of the start. The engine turns the collector on again.
    gc.disable()
    from hookscope.cli.app import run

    sys.exit(run())


if __name__ == "__main__":
    main()
