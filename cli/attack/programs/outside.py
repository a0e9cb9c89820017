"""How the attacks on the network ask, and how they know who answered."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

MARK = b"trialgate-outside"
"""What the listener of `tryAttacks` answers."""


def address(text: str, port: int = 80) -> tuple[str, int]:
    host, _, own = text.rpartition(":")
    return (host, int(own)) if host else (text, port)


def asked(to: tuple[str, int], request: bytes, seconds: float = 1.5) -> bytes:
    """Returns the first bytes that a TCP server answers; none if it cannot be reached."""
    try:
        with socket.create_connection(to, timeout=seconds) as connection:
            connection.sendall(request)
            received = b""
            while len(received) < 4096 and (part := connection.recv(4096)):
                received += part
                if MARK in received:
                    break
            return received
    except OSError:
        return b""


def sent(to: tuple[str, int], datagram: bytes, seconds: float = 1.5) -> bytes:
    """Returns what is answered to a datagram; none if nothing is."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
            connection.settimeout(seconds)
            connection.connect(to)
            connection.send(datagram)
            return connection.recv(4096)
    except OSError:
        return b""


def get(url: str) -> bytes:
    return f"GET {url} HTTP/1.1\r\nHost: {urlsplit(url).netloc or 'outside'}\r\nConnection: close\r\n\r\n".encode()
