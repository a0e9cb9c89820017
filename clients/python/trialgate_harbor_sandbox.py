"""Gives Harbor the sandboxes of Trialgate as an environment: bubblewrap, containers or SLURM's jobs.

    harbor run --path TASK --agent oracle --environment-import-path trialgate_harbor_sandbox:TrialgateSandbox

`python -m trialgate_harbor` uses it with `--environment trialgate`. Needs Python 3.12 and Harbor 0.26; docs/harbor.md
says what differs from Harbor's own environments.
"""

from __future__ import annotations

import asyncio
import base64
import io
import itertools
import json
import shlex
import signal
import tarfile
import tempfile
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, override
from urllib.parse import urlsplit, urlunsplit

from harbor.environments.base import BaseEnvironment, ExecResult, transfer_tar_filter
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.models.task.config import NetworkMode, NetworkPolicy

#: The folders into which Harbor and its agents write, besides those that a sandbox has (`/app`, `/logs`, `/tmp`).
FOLDERS = ["/tests", "/solution", "/runtime", "/installed-agent"]
#: A transfer of files that takes longer hangs.
TRANSFER_SECONDS = 600
#: A program without a limit of its own ends with its phase, of which Harbor has a limit.
LONGEST_SECONDS = 7 * 86_400
#: The most bytes that a program may print, and the most that a folder may have that is brought out.
PRINTED_BYTES = 64 * 2**20
BROUGHT_BYTES = 180 * 2**20
_LONGEST_LINE = 2**30


class SandboxUnavailableError(Exception):
    """The host, the kind of sandbox or the gateway failed. What ran inside is not to blame."""


class SandboxRefusedError(Exception):
    """A task or this machine must change before a sandbox can start."""


class ServeProcess:
    """A process of `trialgate sandbox serve`: one for all sandboxes of this program."""

    _shared: ClassVar[dict[tuple[str, ...], asyncio.Task[ServeProcess]]] = {}
    _is_closed: ClassVar[bool] = False

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._has_answered = False
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def shared(cls, command: tuple[str, ...]) -> ServeProcess:
        """Returns the process of this command, and starts it if there is none."""
        if cls._is_closed:
            raise SandboxUnavailableError("the program ends")
        starting = cls._shared.get(command)
        if starting is None or (starting.done() and (starting.exception() or starting.result()._reading.done())):
            starting = cls._shared[command] = asyncio.ensure_future(cls._start(command))
        return await asyncio.shield(starting)

    @classmethod
    async def _start(cls, command: tuple[str, ...]) -> ServeProcess:
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
                # Ctrl-C in the terminal is for the program, which then removes its sandboxes.
                start_new_session=True,
            )
        except OSError as error:
            raise SandboxRefusedError(f"{shlex.join(command)} does not start: {error}") from error
        return cls(process)

    @classmethod
    async def close_all(cls) -> None:
        """Ends the processes, which remove their sandboxes."""
        cls._is_closed = True
        starting, cls._shared = [*cls._shared.values()], {}
        for server in await asyncio.gather(*starting, return_exceptions=True):
            if isinstance(server, ServeProcess):
                server._process.stdin.close()
                await server._process.wait()
                await server._reading

    async def ask(self, **request: Any) -> dict[str, Any]:
        """Returns the answer to a request.

        Raises SandboxRefusedError or SandboxUnavailableError, also when the process ends. A `start` or a `run` is
        cancelled when the caller is.
        """
        number = next(self._ids)
        answer = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send(number, request)
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                await self._cancel(number, request["do"], answer)
                raise
        finally:
            self._asked.pop(number, None)
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def _cancel(self, number: int, do: str, answer: asyncio.Future[dict[str, Any]]) -> None:
        if do not in ("start", "run"):
            return
        try:
            if not answer.done():
                await self._send(next(self._ids), {"do": "cancel", "request": number})
                await asyncio.wait((answer,))
            if do == "start" and answer.exception() is None:
                await self._send(next(self._ids), {"do": "stop", "sandbox": answer.result()["sandbox"]})
        except SandboxUnavailableError:
            # The process has ended, and its sandboxes with it.
            return

    async def _send(self, number: int, request: dict[str, Any]) -> None:
        if self._reading.done():
            raise SandboxUnavailableError("the process of `trialgate sandbox serve` has ended")
        try:
            self._process.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise SandboxUnavailableError(f"the process of `trialgate sandbox serve` has ended: {error}") from error

    async def _read(self) -> None:
        try:
            async for line in self._process.stdout:
                try:
                    answer = json.loads(line)
                except ValueError:
                    # npx and others may print a line of their own.
                    continue
                self._has_answered = True
                asked = self._asked.get(answer["id"])
                if asked is None or asked.done():
                    continue
                error = answer.get("error")
                if error is None:
                    asked.set_result(answer["result"])
                elif error["code"] in ("bad_input", "missing_prerequisite"):
                    asked.set_exception(SandboxRefusedError(error["message"]))
                else:
                    asked.set_exception(SandboxUnavailableError(error["message"]))
        finally:
            status = await self._process.wait()
            # It prints why to the standard error, which is the program's own.
            message = f"`trialgate sandbox serve` ended with exit code {status}"
            failure = SandboxUnavailableError if self._has_answered else SandboxRefusedError
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(failure(message))


class TrialgateSandbox(BaseEnvironment):
    """A sandbox of Trialgate. All its programs run as the same user, which is not root.

    Each program is a sandbox of its own with the same files: what it starts ends with it.
    """

    def __init__(
        self,
        *args: Any,
        kind: str = "bubblewrap",
        trialgate: list[str] | None = None,
        gateway: str | None = None,
        network: str = "gateway",
        readable: list[str] | None = None,
        path: list[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """`gateway`: the URL that programs reach. `network`: what a task gets that wants a public network: `gateway`
        alone, or `host`, all that this machine reaches. `readable`: folders of this machine that programs read, such as
        those of installed agents. `path`: the folders that come first in their PATH. `trialgate`: the command.
        """
        if network not in ("gateway", "host"):
            raise ValueError(f"network: expected `gateway` or `host`, found {network!r}")
        self._command = (*(trialgate or ("npx", "trialgate")), "sandbox", "serve", "--kind", kind)
        self._gateway = gateway
        self._public = network
        self._readable = readable or []
        self._path = path or []
        self._sandbox: str | None = None
        self._cwd = "/app"
        super().__init__(*args, **kwargs)

    @staticmethod
    @override
    def type() -> str:
        return "trialgate"

    @property
    @override
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            # The gateway's address alone: `_network` refuses others.
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            dynamic_network_policy=True,
        )

    @classmethod
    @override
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @override
    def _validate_definition(self) -> None:
        if self.environment_dir.name != "environment":
            raise ValueError("a verifier with an environment of its own does not run in a sandbox of Trialgate")
        for policy in (self._network_policy, *self._phase_network_policies):
            self._network(policy)

    @override
    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        self._network(network_policy)

    @override
    async def start(self, force_build: bool) -> None:
        server = await ServeProcess.shared(self._command)
        started = await server.ask(
            do="start",
            task=str(self.environment_dir.parent.resolve()),
            folders=FOLDERS,
            readable=self._readable,
            path=self._path,
        )
        self._sandbox, self._cwd = started["sandbox"], self.task_env_config.workdir or started["cwd"]
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    @override
    async def stop(self, delete: bool) -> None:
        if self._sandbox is not None:
            name, self._sandbox = self._sandbox, None
            server = await ServeProcess.shared(self._command)
            await asyncio.shield(server.ask(do="stop", sandbox=name))

    @override
    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        ended = await self._run(["bash", "-c", command], cwd=cwd, env=env, seconds=timeout_sec)
        if ended["reason"] == "cancelled":
            raise SandboxUnavailableError("the program was ended because its sandboxes are no longer served")
        if ended["gateway_failures"] > 0 and ended["exit_code"] != 0:
            raise SandboxUnavailableError(f"the gateway failed {ended['gateway_failures']} times while it ran")
        if ended["reason"] == "timed_out":
            raise RuntimeError(f"Command timed out after {timeout_sec or LONGEST_SECONDS} seconds")
        return ExecResult(stdout=ended["stdout"], stderr=_stderr_of(ended), return_code=_code_of(ended))

    @override
    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        target = PurePosixPath(target_path)
        await self._unpack(str(target.parent), lambda tar: tar.add(source_path, target.name, filter=_plain))

    @override
    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        await self._unpack(target_dir, lambda tar: tar.add(source_dir, ".", filter=_plain))

    @override
    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        # A pipe in the place of the file would never end.
        content = await self._printed('test -f "$1" && base64 < "$1"', source_path)
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        Path(target_path).write_bytes(content)

    @override
    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        # A file that changed meanwhile (exit code 1) is no failure.
        pack = 'cd "$1" && packed=$(mktemp) && { tar -cf "$packed" . || [ $? -eq 1 ]; } && base64 < "$packed"'
        content = await self._printed(f'{pack}; code=$?; rm -f "$packed"; exit $code', source_dir)
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            tar.extractall(target_dir, filter=transfer_tar_filter)

    async def _unpack(self, target: str, add: Any) -> None:
        """Packs files of this machine and unpacks them in a folder of the sandbox."""
        # Only this user enters the folder. A sandbox's user reads the file itself.
        with tempfile.TemporaryDirectory(prefix="trialgate-") as folder:
            file = Path(folder, "packed.tar")
            with tarfile.open(file, mode="w") as tar:
                add(tar)
            file.chmod(0o644)
            script = 'mkdir -p "$1" && exec tar -xf - -C "$1" --no-same-owner'
            command = ["sh", "-c", script, "sh", target]
            ended = await self._run(command, stdin=str(file), seconds=TRANSFER_SECONDS)
        _require(ended, f"the files for {target} cannot be written")

    async def _printed(self, script: str, path: str) -> bytes:
        ended = await self._run(
            ["sh", "-c", script, "sh", path], seconds=TRANSFER_SECONDS, output_bytes=BROUGHT_BYTES * 4 // 3
        )
        _require(ended, f"{path} cannot be read")
        return base64.b64decode(ended["stdout"])

    async def _run(
        self,
        argv: list[str],
        *,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        seconds: int | None = None,
        stdin: str | None = None,
        output_bytes: int = PRINTED_BYTES,
    ) -> dict[str, Any]:
        if self._sandbox is None:
            raise SandboxUnavailableError("the sandbox has not started, or has been stopped")
        server = await ServeProcess.shared(self._command)
        return await server.ask(
            do="run",
            sandbox=self._sandbox,
            argv=argv,
            cwd=cwd or self._cwd,
            env={**self._startup_env(), **(self._merge_env(env) or {})},
            seconds=seconds or LONGEST_SECONDS,
            output_bytes=output_bytes,
            network=self._network(self._network_policy),
            **({} if stdin is None else {"stdin": stdin}),
        )

    def _network(self, policy: NetworkPolicy) -> str | dict[str, Any]:
        """Returns the network in the words of `trialgate sandbox serve`."""
        if policy.network_mode == NetworkMode.NO_NETWORK:
            return "none"
        if policy.network_mode == NetworkMode.PUBLIC:
            if self._public == "host":
                return "host"
            return "none" if self._gateway is None else {"gateway": self._gateway}
        own = None if self._gateway is None else urlsplit(self._gateway).hostname
        hosts = [host for host in policy.allowed_hosts if host not in (own, "127.0.0.1", "localhost")]
        addresses = [host for host in hosts if _is_address(host)]
        if addresses:
            raise ValueError(f"a sandbox of Trialgate opens names, not addresses: {', '.join(addresses)}")
        network: dict[str, Any] = {"hosts": hosts} if hosts else {}
        # Harbor allows the host of the agent's model while the agent runs, and at no other time.
        if len(hosts) < len(policy.allowed_hosts) and self._gateway is not None:
            network["gateway"] = self._gateway
        return network or "none"


def inside_url(url: str) -> str:
    """Returns the gateway's URL for a program in a sandbox, as `gatewayAddress` of activities/sandbox/network.ts."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    name = "127.0.0.1" if _is_address(host) or host == "localhost" else host
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return urlunsplit(parts._replace(netloc=f"{name}:{port if port >= 1024 else 8700}"))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leaves out who owns the files of this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _stderr_of(ended: dict[str, Any]) -> str:
    if ended["reason"] == "exited":
        return str(ended["stderr"])
    return f"{ended['stderr']}\nthe program was ended: {ended['reason'].replace('_', ' ')}".lstrip()


def _code_of(ended: dict[str, Any]) -> int:
    if ended["exit_code"] is not None and (ended["reason"] == "exited" or ended["exit_code"] != 0):
        return int(ended["exit_code"])
    return 128 + (signal.Signals[ended["signal"]] if ended["signal"] else signal.SIGKILL)


def _require(ended: dict[str, Any], otherwise: str) -> None:
    if ended["reason"] != "exited" or ended["exit_code"] != 0:
        raise RuntimeError(f"{otherwise}: {_stderr_of(ended).strip()[-500:] or ended['reason']}")
