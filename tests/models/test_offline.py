"""A block without network: nothing outside this machine is looked up or connected to."""

from __future__ import annotations

import socket
import urllib.request

import pytest

from hookscope.models.offline import no_network


def test_nothing_reaches_the_network() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with server, no_network("kept offline"):
        with pytest.raises(OSError, match="kept offline"):
            urllib.request.urlopen("http://example.invalid/file")
        with socket.socket() as link, pytest.raises(OSError, match="kept offline"):
            link.connect(server.getsockname())


def test_sockets_within_the_machine_work() -> None:
    with no_network("kept offline"):
        one, other = socket.socketpair()
        with one, other:
            one.sendall(b"x")
            assert other.recv(1) == b"x"


def test_the_network_is_back_afterwards() -> None:
    with no_network("kept offline"):
        pass
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()).close()


def test_the_hub_client_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with no_network("kept offline"):
        assert constants.HF_HUB_OFFLINE
    assert not constants.HF_HUB_OFFLINE
