"""Joins ports of the sandbox's own loopback to sockets of the host, then becomes the sandbox's command.

    relay.py SOCKET PORT [SOCKET PORT]... -- COMMAND ARGUMENT...

The sockets are the gateway's and the egress proxy's. Each port has a process of its own, so that no port uses up
the connections of another. The listeners are open before the command starts. Python's `socket` and `os` are imported
only in the relay's own process: without them the command starts 8 ms earlier.
"""

import _signal
import _socket
import posix
import sys

CHUNK = 65536
MAX_CONNECTIONS = 512
# The descriptors that the relay keeps for itself and those that it may have inherited.
OWN_DESCRIPTORS = 32


def main() -> None:
    end = sys.argv.index("--")
    command = sys.argv[end + 1 :]
    for at in range(1, end, 2):
        start(sys.argv[at], int(sys.argv[at + 1]))
    # Python ignores these signals, and the command would inherit that.
    _signal.signal(_signal.SIGPIPE, _signal.SIG_DFL)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_DFL)
    posix.execv(command[0], command)


def start(path: str, port: int) -> None:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(MAX_CONNECTIONS)
    # The host takes the first connection as the sign that the relay works.
    sign = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    sign.connect(path)
    sign.close()
    # This forks twice so that the relay is not a child of the command, which may wait for all its children.
    child = posix.fork()
    if child == 0:
        if posix.fork() == 0:
            serve(listener, path)
        posix._exit(0)
    posix.waitpid(child, 0)
    # The relay has its own.
    listener.close()


def serve(accepting: _socket.socket, path: str) -> None:
    import contextlib
    import os
    import resource
    import selectors
    import socket
    import struct

    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(soft, min(hard, 4 * MAX_CONNECTIONS))
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    # A connection takes two descriptors. Without a free one, accepting would fail again and again in a busy loop.
    max_connections = max(1, min(MAX_CONNECTIONS, (limit - OWN_DESCRIPTORS) // 2))

    selector = selectors.DefaultSelector()
    listener = socket.socket(fileno=accepting.detach())
    listener.setblocking(False)
    open_connections = 0

    class Pipe:
        """Copies one direction of a connection and holds at most one chunk."""

        def __init__(self, source: socket.socket, target: socket.socket) -> None:
            self.source = source
            self.target = target
            self.waiting = memoryview(b"")
            self.ended = False

        def read(self) -> None:
            data = self.source.recv(CHUNK)
            if data:
                self.waiting = memoryview(data)
                self.write()
            else:
                self.ended = True
                self.target.shutdown(socket.SHUT_WR)

        def write(self) -> None:
            with contextlib.suppress(BlockingIOError):
                self.waiting = self.waiting[self.target.send(self.waiting) :]

    class Connection:
        def __init__(self, inside: socket.socket, outside: socket.socket) -> None:
            inside.setblocking(False)
            outside.setblocking(False)
            inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.requests = Pipe(inside, outside)
            self.replies = Pipe(outside, inside)
            self.watched = {inside: 0, outside: 0}

        def handle(self, ready: socket.socket, events: int) -> None:
            reads, writes = (
                (self.requests, self.replies) if ready is self.requests.source else (self.replies, self.requests)
            )
            try:
                if events & selectors.EVENT_WRITE and writes.waiting:
                    writes.write()
                if events & selectors.EVENT_READ and not reads.waiting and not reads.ended:
                    reads.read()
            except BlockingIOError:
                pass
            except OSError:
                self.reset()
                return
            if self.requests.ended and self.replies.ended:
                self.close()
            else:
                self.watch()

        def watch(self) -> None:
            for reads, writes in ((self.requests, self.replies), (self.replies, self.requests)):
                wanted = selectors.EVENT_READ if not reads.ended and not reads.waiting else 0
                wanted |= selectors.EVENT_WRITE if writes.waiting else 0
                before = self.watched[reads.source]
                if wanted == before:
                    continue
                self.watched[reads.source] = wanted
                if wanted and before:
                    selector.modify(reads.source, wanted, self)
                elif wanted:
                    selector.register(reads.source, wanted, self)
                else:
                    selector.unregister(reads.source)

        def reset(self) -> None:
            """Ends the connection in a way that does not look like an orderly end."""
            for end in self.watched:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close()

        def close(self) -> None:
            nonlocal open_connections
            for end, wanted in self.watched.items():
                if wanted:
                    selector.unregister(end)
                end.close()
            open_connections -= 1
            if open_connections == max_connections - 1:
                selector.register(listener, selectors.EVENT_READ)

    def accept() -> None:
        nonlocal open_connections
        inside, _ = listener.accept()
        outside = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            outside.connect(path)
        except OSError:
            inside.close()
            outside.close()
            return
        open_connections += 1
        Connection(inside, outside).watch()
        # At the limit, further connections wait in the listener's queue.
        if open_connections == max_connections:
            selector.unregister(listener)

    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, events in selector.select():
            if key.data is None:
                try:
                    accept()
                except OSError:
                    continue
            elif key.fileobj.fileno() != -1:
                key.data.handle(key.fileobj, events)


if __name__ == "__main__":
    main()
