"""Runs a sandbox's process on a node of a cluster. `run-job.ts` writes the job's file and reads its result.

    node.py JOB

It prints the job's sign when the process starts. The process ends with this program, and its end is in the result's
file, so this program's own exit code is 0 unless the node cannot run it.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from typing import TypedDict

CONNECT_SECONDS = 20
CHUNK = 65536
# The exit code of this program when the node cannot run the job.
CANNOT = 96


class Tunnel(TypedDict):
    """The way to a port of the worker, which leads to the gateway."""

    port: int
    token: str
    # The name of the socket, in the job's folder, that the sandbox has.
    socket: str


class Job(TypedDict):
    argv: list[str]
    env: dict[str, str]
    # The file with the filter of system calls, which bubblewrap gets as descriptor `seccompFd`.
    seccomp: str | None
    seccompFd: int
    # The descriptor to which bubblewrap reports.
    statusFd: int
    sign: str
    result: str
    tunnels: list[Tunnel]


def main() -> int:
    path = sys.argv[1]
    try:
        with open(path, encoding="utf-8") as file:
            job: Job = json.load(file)
    except OSError as error:
        return cannot(
            f"it cannot read {path} ({error.strerror}): the deployment's folder must be on a file system that the "
            "worker and the nodes share, under the same path"
        )
    missing = [file for file in (job["argv"][0], job["seccomp"]) if file and not os.path.exists(file)]
    if missing:
        return cannot(f"it has no {missing[0]}: nodes need the worker's programs under the same paths")
    # The address at which srun, and so the worker, listens for this node.
    host = os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    bridges = []
    for tunnel in job["tunnels"]:
        try:
            bridges.append(Bridge(host, tunnel, os.path.dirname(path)))
        except OSError as error:
            return cannot(
                f"it cannot reach the worker at {host}, port {tunnel['port']} ({error}): open the worker's "
                "ports to the nodes, or set `network: host`"
            )
    ended = run(job)
    relay_started = all(bridge.started.wait(1) for bridge in bridges)
    with open(job["result"], "r+", encoding="utf-8") as file:
        json.dump({**ended, "relayStarted": relay_started}, file)
        file.flush()
        os.fsync(file.fileno())
    return 0


def cannot(why: str) -> int:
    print(f"the node {os.uname().nodename} cannot run the sandbox: {why}", file=sys.stderr)
    return CANNOT


def run(job: Job) -> dict[str, int | None]:
    """Returns the exit code that bubblewrap reports, or null when it could not start the process."""
    reading, writing = os.pipe()
    # bubblewrap knows the descriptors by these numbers.
    given = [(writing, job["statusFd"])]
    if job["seccomp"]:
        given.append((os.open(job["seccomp"], os.O_RDONLY), job["seccompFd"]))
    for descriptor, wanted in given:
        os.dup2(descriptor, wanted)
        os.close(descriptor)
    print(job["sign"], flush=True)
    child = subprocess.Popen(job["argv"], env=job["env"], cwd="/", pass_fds=[wanted for _, wanted in given])
    for _, wanted in given:
        os.close(wanted)
    with os.fdopen(reading, encoding="utf-8") as status:
        reports = [json.loads(line) for line in status if line.strip()]
    child.wait()
    merged = {key: value for report in reports for key, value in report.items()}
    first = merged.get("child-pid")
    # The end of the first process of the sandbox ends all others.
    while first is not None and is_alive(first):
        time.sleep(0.002)
    return {"exitCode": merged.get("exit-code"), "bubblewrap": child.returncode}


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="latin-1") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Bridge:
    """Joins a socket of the sandbox to the worker's port."""

    def __init__(self, host: str, tunnel: Tunnel, folder: str) -> None:
        self.address = (host, tunnel["port"])
        self.token = tunnel["token"]
        # True after the relay inside of the sandbox has made its first connection, which is the sign that it works.
        self.started = threading.Event()
        self.connect().close()
        self.listener = socket.socket(socket.AF_UNIX)
        # The path of a socket may have 107 bytes at most, and a deployment's folder may be deep.
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(tunnel["socket"], dir_fd=at)
        self.listener.bind(f"/proc/self/fd/{at}/{tunnel['socket']}")
        os.chmod(tunnel["socket"], 0o666, dir_fd=at)
        os.close(at)
        self.listener.listen(512)
        threading.Thread(target=self.serve, daemon=True).start()

    def connect(self) -> socket.socket:
        outside = socket.create_connection(self.address, CONNECT_SECONDS)
        outside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        outside.sendall(f"{self.token}\n".encode())
        if outside.recv(1) != b"+":
            raise ConnectionRefusedError("the worker refused the connection")
        outside.settimeout(None)
        return outside

    def serve(self) -> None:
        self.listener.accept()[0].close()
        self.started.set()
        threading.stack_size(256 * 1024)
        while True:
            inside = self.listener.accept()[0]
            threading.Thread(target=self.join, args=(inside,), daemon=True).start()

    def join(self, inside: socket.socket) -> None:
        try:
            outside = self.connect()
        except OSError:
            inside.close()
            return
        requests = threading.Thread(target=copy, args=(inside, outside), daemon=True)
        requests.start()
        copy(outside, inside)
        requests.join()
        inside.close()
        outside.close()


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copies until the source ends. A connection that breaks off ends in both directions."""
    try:
        while data := source.recv(CHUNK):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    sys.exit(main())
