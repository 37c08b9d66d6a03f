"""A block in which nothing reaches the network, whoever's code runs inside."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hookscope.models.structure import replaced


@contextmanager
def no_network(reason: str) -> Iterator[None]:
    """A block in which looking up a host and connecting to one raise ``OSError(reason)``.

    The hub's client is told as well: it would try again for three quarters of a minute.
    Sockets of the machine itself (data loaders, debuggers) work as ever.
    """
    connect = socket.socket.connect

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(reason)

    def connect_locally(link: socket.socket, address: Any) -> None:
        if link.family in (socket.AF_INET, socket.AF_INET6):
            refuse()
        connect(link, address)

    with ExitStack() as changes:
        changes.enter_context(replaced(socket, "getaddrinfo", refuse))
        changes.enter_context(replaced(socket.socket, "connect", connect_locally))
        hub = sys.modules.get("huggingface_hub.constants")
        if hub is not None:
            changes.enter_context(replaced(hub, "HF_HUB_OFFLINE", True))
        elif "HF_HUB_OFFLINE" not in os.environ:
            os.environ["HF_HUB_OFFLINE"] = "1"
            changes.callback(os.environ.pop, "HF_HUB_OFFLINE", None)
        yield
