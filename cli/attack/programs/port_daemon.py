"""Leaves a process that holds the usual ports and answers every request with success."""

import contextlib
import selectors
import socket
import time

from common import daemon

PORTS = (3000, 5000, 8000, 8080, 8888, 9000)
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\n1\n"


def serve() -> None:
    selector = selectors.DefaultSelector()
    for port in PORTS:
        with contextlib.suppress(OSError):
            selector.register(socket.create_server(("0.0.0.0", port)), selectors.EVENT_READ)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for key, _ in selector.select(1):
            server = key.fileobj
            if isinstance(server, socket.socket):
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(REPLY)


daemon(serve)
time.sleep(0.3)  # The ports are taken before the verifier can start.
