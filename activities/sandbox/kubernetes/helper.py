"""Runs in the helper container of a sandbox's pod, by `exec`. `files.ts` and `tunnel.ts` are at the other end.

    helper.py MEGABYTES FOLDER... -- PORT...

It first unpacks an archive for each folder from the standard input. Then it joins ports of the pod's loopback to the
worker, and counts the disk space of the folders.
"""

import asyncio
import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time

CHUNK = 65536
MAX_CONNECTIONS = 512
# Each side sends so many bytes of a connection before the other side says that they are read. `tunnel.ts` has the same
# number.
WINDOW_BYTES = 2**18
# The worker ends sandboxes of other kinds at this number of files and folders too.
MAX_ENTRIES = 200_000
# A frame is its type, the number of its connection and the number of bytes that follow.
HEAD = struct.Struct(">cII")
COUNT = struct.Struct(">I")
OPEN, DATA, READ, END, RESET, NOTE = b"O", b"D", b"A", b"E", b"R", b"N"


def read(count: int) -> bytes:
    """Reads from the standard input without reading ahead."""
    data = bytearray()
    while len(data) < count:
        some = os.read(0, min(CHUNK, count - len(data)))
        if not some:
            sys.exit("the worker is gone")
        data += some
    return bytes(data)


def unpack(folder: str) -> None:
    """Unpacks an archive that comes in parts, each with its length before it, and ends with an empty one."""
    tar = subprocess.Popen(["tar", "-x", "-p", "-f", "-", "-C", folder], stdin=subprocess.PIPE)
    assert tar.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        while length := struct.unpack(">I", read(4))[0]:
            tar.stdin.write(read(length))
        tar.stdin.close()
    if tar.wait() != 0:
        sys.exit(f"tar could not unpack the files of {folder}")


def is_open() -> bool:
    """Returns whether the cluster lets this pod reach its API, which its network policy forbids."""
    address = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ.get("KUBERNETES_SERVICE_PORT", "443")))
    try:
        socket.create_connection(address, 1).close()
    except OSError:
        # Some plugins drop what a policy forbids, others refuse it. The API itself refuses nobody: the worker uses it
        # right now.
        return False
    return True


class Connection:
    """A connection of the pod, which the worker continues."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.left = WINDOW_BYTES
        self.may_send = asyncio.Event()
        # The worker sends no more than a window before it hears that bytes are read, so this is bounded.
        self.received: asyncio.Queue[bytes | None] = asyncio.Queue()


class Worker:
    """The connection to the worker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.connections: dict[int, Connection] = {}
        self.last = 0

    def send(self, kind: bytes, connection: int, payload: bytes = b"") -> None:
        self.writer.write(HEAD.pack(kind, connection, len(payload)) + payload)

    async def accept(self, index: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self.connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self.last += 1
        number = self.last
        connection = self.connections[number] = Connection(writer)
        self.send(OPEN, number, bytes([index]))
        passing = asyncio.create_task(self.pass_received(number, connection))
        try:
            while data := await reader.read(CHUNK):
                await self.send_data(number, connection, data)
            self.send(END, number)
        except OSError:
            self.send(RESET, number)
            self.forget(number)
        # The worker may still answer one that has ended its own side.
        await passing

    async def send_data(self, number: int, connection: Connection, data: bytes) -> None:
        while data:
            while connection.left == 0 and number in self.connections:
                connection.may_send.clear()
                await connection.may_send.wait()
            part = data[: connection.left] if number in self.connections else b""
            if not part:
                return
            data = data[len(part) :]
            connection.left -= len(part)
            self.send(DATA, number, part)
            await self.writer.drain()

    async def pass_received(self, number: int, connection: Connection) -> None:
        try:
            while (data := await connection.received.get()) is not None:
                connection.writer.write(data)
                await connection.writer.drain()
                self.send(READ, number, COUNT.pack(len(data)))
            connection.writer.close()
        except (OSError, RuntimeError):
            self.send(RESET, number)
            self.forget(number)

    def forget(self, number: int, *, is_broken: bool = True) -> None:
        connection = self.connections.pop(number, None)
        if connection:
            connection.may_send.set()
            connection.received.put_nowait(None)
            if is_broken:
                connection.writer.transport.abort()

    async def receive(self) -> None:
        while True:
            kind, number, length = HEAD.unpack(await self.reader.readexactly(HEAD.size))
            data = await self.reader.readexactly(length)
            connection = self.connections.get(number)
            if connection is None:
                continue
            if kind == READ:
                connection.left += COUNT.unpack(data)[0]
                connection.may_send.set()
            elif kind == DATA:
                connection.received.put_nowait(data)
            else:
                self.forget(number, is_broken=kind == RESET)


def used(roots: list[str]) -> tuple[int, int]:
    """Returns the bytes on the disk and the number of files and folders."""
    total = count = 0
    # It goes down by descriptors, so depth and names do not matter, and keeps no list of what it has found.
    command = ["find", *roots, "-mindepth", "1", "-printf", "%b\\n"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as find:
        assert find.stdout is not None
        for line in find.stdout:
            total += int(line) * 512
            count += 1
    return total, count


async def serve(megabytes: int, folders: list[str], ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    worker = Worker(reader, asyncio.StreamWriter(transport, protocol, None, loop))
    for index, port in enumerate(ports):

        async def accept(inside: asyncio.StreamReader, outside: asyncio.StreamWriter, index: int = index) -> None:
            await worker.accept(index, inside, outside)

        await asyncio.start_server(accept, "127.0.0.1", port, backlog=MAX_CONNECTIONS)
    before, entries_before = await asyncio.to_thread(used, folders)
    # A network may need some seconds before it knows a new pod.
    network = b"unchecked"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        for _ in range(5):
            network = b"open" if await asyncio.to_thread(is_open) else b"ready"
            if network == b"ready":
                break
            await asyncio.sleep(1)
    worker.send(NOTE, 0, network)

    def count() -> None:
        while True:
            begin = time.monotonic()
            now, entries = used(folders)
            loop.call_soon_threadsafe(worker.send, NOTE, 0, b"disk %d" % max(0, now - before))
            if now - before >= megabytes * 2**20 or entries - entries_before >= MAX_ENTRIES:
                loop.call_soon_threadsafe(worker.send, NOTE, 0, b"storage")
                return
            time.sleep(max(1, 10 * (time.monotonic() - begin)))

    threading.Thread(target=count, daemon=True).start()
    with contextlib.suppress(asyncio.IncompleteReadError):
        await worker.receive()
    # Its threads and connections end with it.
    os._exit(0)


def main() -> None:
    end = sys.argv.index("--")
    folders = sys.argv[2:end]
    for folder in folders:
        unpack(folder)
    asyncio.run(serve(int(sys.argv[1]), folders, [int(port) for port in sys.argv[end + 1 :]]))


if __name__ == "__main__":
    main()
