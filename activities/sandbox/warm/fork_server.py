"""Runs the trials of a function agent as forks of one process that has imported the function's module.

    fork_server.py SETTINGS

The module is imported once, before any trial. Each trial is a fork with namespaces of its own for users, mounts,
processes, IPC and network. It has the same rights as a command in a sandbox of its own: it sees only its own folders,
processes and loopback, has no capability, and makes only the system calls that the filter allows. The server itself
runs without that filter, and no output of a model reaches it. It talks with the host over a Unix socket, one JSON
object a line:

    host ← {"ready": true, "pid": …} | {"fault": …}           once
    host → {"start": ID}                                      the trial's folder is `/trials/ID`
    host ← {"started": ID, "pid": …}                          pids are those of the server's namespace
    host → {"go": ID}                                         the host has prepared its limits
    host → {"kill": ID}
    host ← {"ended": ID, "exit": …} | {"ended": ID, "signal": true} | {"ended": ID, "fault": …}

The trial's environment, limits and working folder are in the file `trial.json` of its folder, which only the fork
reads: what the server read would stay in its memory, and so in that of every later fork.

It needs Linux, Python 3.9 and nothing but its library.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib.util
import json
import os
import resource
import selectors
import signal
import socket
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

TRIALS = "/trials"
"""The folder of the trials' folders, which no trial sees."""
WAYS = "/run/trialgate"
"""Each trial's own sockets, which lead to the gateway and to the egress proxy, are mounted in this folder."""
CHUNK = 65536
KILLED = 128 + signal.SIGKILL

# These constants are from sched.h, mount.h, prctl.h, capability.h, seccomp.h and sockios.h of Linux.
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
SIOCSIFFLAGS, IFF_UP_AND_RUNNING = 0x8914, 0x41

libc = ctypes.CDLL(None, use_errno=True)
Settings = dict[str, Any]


def must(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def mount(source: str, target: str, kind: str = "none", flags: int = 0) -> None:
    must(libc.mount(source.encode(), target.encode(), kind.encode(), flags, None), f"mounting {target}")


def prctl(option: int, value: int, pointer: bytes | None = None) -> None:
    # The kernel compares all of an unused argument with 0, also the half that an `int` leaves as it was.
    nothing = ctypes.c_ulong(0)
    must(libc.prctl(option, ctypes.c_ulong(value), pointer, nothing, nothing), f"prctl {option}")


class Sandbox:
    """Makes the calling process the parent of a sandbox, and its next child the first process of that sandbox."""

    def __init__(self, settings: Settings) -> None:
        self.folders: dict[str, str] = settings["folders"]
        self.covered: list[str] = settings["covered"]
        self.has_own_network: bool = not settings["host_network"]
        self.doors: list[dict[str, Any]] = settings["doors"]
        self.filter = Path(settings["filter"]).read_bytes() if settings["filter"] else None

    def leave(self) -> None:
        """Makes the namespaces. The new namespace of processes holds the children that follow."""
        user, group = os.getuid(), os.getgid()
        network = CLONE_NEWNET if self.has_own_network else 0
        must(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | network), "making namespaces")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")

    def enter(self, folder: str | None) -> None:
        """Mounts the trial's own folders over the server's, and hides the folders of all trials."""
        mount("none", "/", flags=MS_REC | MS_PRIVATE)
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        if folder is not None:
            covered = {path: os.open(path, os.O_PATH) for path in self.covered}
            for name, inside in self.folders.items():
                mount(f"{folder}/{name}", inside, flags=MS_BIND)
            for path, descriptor in covered.items():
                make_mount_point(path, os.path.isdir(f"/proc/self/fd/{descriptor}"))
                mount(f"/proc/self/fd/{descriptor}", path, flags=MS_BIND | MS_REC)
                os.close(descriptor)
            ways = [(door["socket"], way_of(door)) for door in self.doors]
            for name, inside in (*ways, ("hosts", "/etc/hosts")):
                if os.path.exists(f"{folder}/{name}"):
                    mount(f"{folder}/{name}", inside, flags=MS_BIND)
                    mount("none", inside, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)
        mount("tmpfs", TRIALS, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
        if self.has_own_network:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", IFF_UP_AND_RUNNING))

    def drop_rights(self) -> None:
        with contextlib.suppress(OSError):  # the kernel knows fewer
            for capability in range(64):
                prctl(PR_CAPBSET_DROP, capability)
        header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
        must(libc.capset(header, bytes(24)), "dropping capabilities")
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        if self.filter is None:
            return
        program = ctypes.create_string_buffer(self.filter, len(self.filter))
        header = struct.pack("HxxxxxxP", len(self.filter) // 8, ctypes.addressof(program))
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header)


def make_mount_point(path: str, is_folder: bool) -> None:
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
    if not is_folder:
        Path(path).touch()


class Trial:
    """A fork of the server as the server sees it."""

    def __init__(self, name: str, pid: int, go: int, faults: int) -> None:
        self.name, self.pid, self.go, self.faults = name, pid, go, faults
        self.end = os.pidfd_open(pid)

    def close(self) -> None:
        for descriptor in (self.go, self.faults, self.end):
            with contextlib.suppress(OSError):
                os.close(descriptor)


class Server:
    def __init__(self, host: socket.socket, sandbox: Sandbox, relay: ModuleType) -> None:
        self.host, self.sandbox, self.relay = host, sandbox, relay
        self.selector = selectors.DefaultSelector()
        self.selector.register(host, selectors.EVENT_READ)
        self.trials: dict[str, Trial] = {}
        self.unread = b""

    def serve(self) -> bool:
        """Serves until the host closes its link. Returns True in a trial's process, which is to call the function."""
        while True:
            for key, _ in self.selector.select():
                if key.data is not None:
                    self.collect(key.data)
                    continue
                received = self.host.recv(2**20)
                if not received:
                    return False
                *lines, self.unread = (self.unread + received).split(b"\n")
                for line in lines:
                    if self.handle(json.loads(line)):
                        return True

    def handle(self, message: dict[str, Any]) -> bool:
        if "start" in message:
            return self.start(message)
        trial = self.trials.get(message.get("go") or message.get("kill") or "")
        if trial is None:
            return False
        # The process may have ended already.
        with contextlib.suppress(OSError):
            if "go" in message:
                os.write(trial.go, b"g")
            else:
                os.kill(trial.pid, signal.SIGKILL)
        return False

    def start(self, message: dict[str, Any]) -> bool:
        name: str = message["start"]
        (may_go, go), (faults, fault) = os.pipe(), os.pipe()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        try:
            pid = os.fork()
        except OSError as error:
            for descriptor in (may_go, go, faults, fault):
                os.close(descriptor)
            self.tell({"ended": name, "fault": f"fork: {error}"})
            return False
        if pid > 0:
            os.close(may_go)
            os.close(fault)
            trial = self.trials[name] = Trial(name, pid, go, faults)
            self.selector.register(trial.end, selectors.EVENT_READ, trial)
            self.tell({"started": name, "pid": pid})
            return False
        os.close(go)
        os.close(faults)
        return self.become(name, may_go, fault)

    def collect(self, trial: Trial) -> None:
        """Reports the end of a trial's process."""
        self.selector.unregister(trial.end)
        del self.trials[trial.name]
        _, status = os.waitpid(trial.pid, 0)
        os.set_blocking(trial.faults, False)
        with contextlib.suppress(BlockingIOError):
            if fault := os.read(trial.faults, CHUNK):
                trial.close()
                self.tell({"ended": trial.name, "fault": fault.decode("utf-8", "replace")})
                return
        trial.close()
        code = os.waitstatus_to_exitcode(status)
        self.tell({"ended": trial.name, **({"signal": True} if code < 0 else {"exit": code})})

    def tell(self, message: dict[str, Any]) -> None:
        self.host.sendall(json.dumps(message).encode() + b"\n")

    def become(self, name: str, may_go: int, fault: int) -> bool:
        """Makes the fork a trial. Returns True in the process that is to call the function, and ends the others."""
        self.selector.close()
        self.host.close()
        for other in self.trials.values():
            other.close()
        handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)}
        first: int | None = None

        def end(*_: Any) -> None:
            # The kernel ends the first process after all others of its namespace.
            if first is None:
                os._exit(KILLED)
            os.kill(first, signal.SIGKILL)

        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            # A trial may send this to its first process, which would print to the server's standard error.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, end)
            silence()
            if not os.read(may_go, 1):
                os._exit(KILLED)  # the server is gone
            os.close(may_go)
            self.sandbox.leave()
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
            first = os.fork()
            if first == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            if first == 0:
                return self.first_process(name, fault, handlers)
            os.close(fault)
            _, status = os.waitpid(first, 0)
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        except Exception as error:
            tell_fault(fault, error)
            os._exit(1)

    def first_process(self, name: str, fault: int, handlers: dict[signal.Signals, Any]) -> bool:
        """Is the first process of the trial's namespace: when it ends, the kernel ends all others."""
        folder = f"{TRIALS}/{name}"
        # A socket's path has 107 bytes at most.
        os.chdir(folder)
        trial = json.loads(Path("trial.json").read_text("utf-8"))
        outputs = [connected("stdout.sock"), connected("stderr.sock")]
        self.sandbox.enter(folder)
        listeners = [(door, self.listen(door)) for door in self.sandbox.doors]
        self.sandbox.drop_rights()
        # Another process of the trial may not trace this one, which reports the exit code.
        prctl(PR_SET_DUMPABLE, 0)
        os.chdir("/")
        for door, listener in listeners:
            if os.fork() == 0:
                for output in outputs:
                    output.close()
                os.close(fault)
                self.relay.serve(listener, way_of(door))
            listener.close()
        pipes = [os.pipe(), os.pipe()]
        child = os.fork()
        if child == 0:
            os.close(fault)
            for output in outputs:
                output.close()
            prctl(PR_SET_DUMPABLE, 1)
            for each, handler in handlers.items():
                if handler is not None:  # Python did not set it
                    signal.signal(each, handler)
            become_command(trial, [write for _, write in pipes], [read for read, _ in pipes])
            return True
        os.close(fault)
        for _, write in pipes:
            os.close(write)
        os._exit(follow(child, [(pipes[i][0], outputs[i]) for i in range(2)]))

    def listen(self, door: dict[str, Any]) -> socket.socket:
        """Opens a port of the trial's loopback that leads out by a socket."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", door["port"]))
        listener.listen(self.relay.MAX_CONNECTIONS)
        # The host takes the first connection as the sign that the relay works.
        connected(way_of(door)).close()
        return listener


def way_of(door: dict[str, Any]) -> str:
    return f"{WAYS}/{door['socket']}"


def connected(path: str) -> socket.socket:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    link.connect(path)
    return link


def tell_fault(fault: int, error: Exception) -> None:
    os.write(fault, f"{type(error).__name__}: {error}".encode()[:4096])


def silence() -> None:
    """Takes the server's standard streams from this process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    os.close(nothing)


def become_command(trial: dict[str, Any], outputs: list[int], unused: list[int]) -> None:
    """Gives this process the streams, limits, environment and folder that a command in a sandbox has."""
    os.setsid()
    for target, source in ((1, outputs[0]), (2, outputs[1])):
        os.dup2(source, target)
    for descriptor in (*outputs, *unused):
        os.close(descriptor)
    if trial["cores"]:
        os.sched_setaffinity(0, trial["cores"])
    for name, most in trial["limits"].items():
        limit = getattr(resource, name)
        _, hard = resource.getrlimit(limit)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (value, value))
    os.environ.clear()
    os.environ.update(trial["env"])
    os.chdir(trial["cwd"])
    reseed()


def reseed() -> None:
    """Gives this fork random numbers of its own. Python's own generator does that by itself."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()


def follow(child: int, streams: list[tuple[int, socket.socket]]) -> int:
    """Copies what the trial prints to the host until its process ends. Returns the exit code that a shell reports."""
    selector = selectors.DefaultSelector()
    for source, target in streams:
        os.set_blocking(source, False)
        selector.register(source, selectors.EVENT_READ, target)
    end = os.pidfd_open(child)
    selector.register(end, selectors.EVENT_READ, None)
    status: int | None = None
    while status is None:
        for key, _ in selector.select(1.0):
            if key.data is not None and not copy(key.fd, key.data):
                selector.unregister(key.fd)
        # Processes whose parents have ended become children of this one.
        with contextlib.suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if reaped[0] == child:
                    status = os.waitstatus_to_exitcode(reaped[1])
    for source, target in streams:
        while copy(source, target):
            pass
        target.close()
    return status if status >= 0 else 128 - status


def copy(source: int, target: socket.socket) -> bool:
    """Copies one chunk. Returns False when there is nothing to read now, or nobody to read it."""
    try:
        chunk = os.read(source, CHUNK)
        target.sendall(chunk)
    except OSError:
        return False
    return bool(chunk)


@contextlib.contextmanager
def noting_reads(names: list[str]) -> Iterator[dict[str, str]]:
    """Notes which of these environment variables Python code may read meanwhile, and where it does so first."""
    plain, read = type(os.environ), dict[str, str]()

    class NotedEnvironment(plain):
        def __getitem__(self, name: str) -> str:
            if name in names:
                read.setdefault(name, reader())
            return super().__getitem__(name)

        def __iter__(self) -> Iterator[str]:
            # A copy of all variables may be read later.
            for name in names:
                read.setdefault(name, reader())
            return super().__iter__()

    os.environ.__class__ = NotedEnvironment
    try:
        yield read
    finally:
        os.environ.__class__ = plain


STANDARD_LIBRARY = str(Path(os.__file__).parent)


def reader() -> str:
    """Returns the place of the code that reads the environment now, below Python's standard library."""
    frame = sys._getframe(2)
    while frame.f_back and is_pythons_own(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}"


def is_pythons_own(file: str) -> bool:
    is_package = "site-packages" in file or "dist-packages" in file
    return file.startswith("<frozen ") or (file.startswith(STANDARD_LIBRARY) and not is_package)


def imported(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def require_namespaces(sandbox: Sandbox) -> None:
    """Tries in a fork what each trial needs."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            sandbox.leave()
            first = os.fork()
            if first == 0:
                sandbox.enter(None)
                sandbox.drop_rights()
                os._exit(0)
            if (status := os.waitpid(first, 0)[1]) != 0:
                raise OSError(f"the first process ended with status {status}")
        except Exception as error:
            tell_fault(writing, error)
        os._exit(0)
    os.close(os.pidfd_open(pid))
    os.close(writing)
    fault = os.read(reading, CHUNK)
    os.close(reading)
    os.waitpid(pid, 0)
    if fault:
        raise OSError(f"this machine gives a sandbox no namespaces of its own: {fault.decode('utf-8', 'replace')}")


def open_descriptors() -> set[str]:
    """Returns the descriptors of this process, each with what it leads to."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.add(f"{name} ({os.readlink(f'/proc/self/fd/{name}')})")
    return found


def prepare(settings: Settings) -> Callable[[], None]:
    """Imports the function's module and returns the call of the function."""
    before = open_descriptors()
    program, *arguments = sys.argv = settings["command"]
    sys.path[0] = str(Path(program).parent)
    with noting_reads(settings["trial_variables"]) as read:
        call: Callable[[], None] = imported(program).prepare(*arguments)
    if read:
        names = ", ".join(sorted(read))
        what = f"its import reads {names} (first in {next(iter(read.values()))}), of which each trial has its own"
        raise LookupError(
            f"{what}. If that is a line of yours, read it in the function; if it is one of a library, "
            "say `warm: false` in the agent's file, which changes nothing but ends this message"
        )
    if opened := open_descriptors() - before:
        left = ", ".join(sorted(opened))
        raise LookupError(f"it leaves {left} open, which all trials would share: open it in the function")
    # Objects of the import stay for all trials. The collector would otherwise copy their memory in each fork.
    gc.collect()
    gc.freeze()
    return call


def end_with(call: Callable[[], None]) -> NoReturn:
    """Calls the function and ends the process as the interpreter does, but leaves the modules as they are.

    To free them would copy the memory that the fork shares with the server, and take as long as the start.
    """
    code = 0
    try:
        call()
    except SystemExit as error:
        if isinstance(error.code, int):
            code = error.code
        elif error.code is not None:
            print(error.code, file=sys.stderr)
            code = 1
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        code = 128 + signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    # The interpreter has no public names for these: it waits for threads and their pools, then calls what `atexit` has.
    threading._shutdown()
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)


def main() -> None:
    settings = json.loads(sys.argv[1])
    host = connected(settings["socket"])
    try:
        sandbox = Sandbox(settings)
        require_namespaces(sandbox)
        call = prepare(settings)
        server = Server(host, sandbox, imported(settings["relay"]))
    except BaseException as error:
        traceback.print_exc()
        host.sendall(json.dumps({"fault": f"{type(error).__name__}: {error}"}).encode() + b"\n")
        sys.exit(1)
    server.tell({"ready": True, "pid": os.getpid()})
    if server.serve():
        end_with(call)


if __name__ == "__main__":
    main()
