"""Runs the conformance suite and the comparison with the local trainer against SkyRL's JAX server, on a CPU.

SkyRL is no part of this package. TRIALGATE_TEST_SKYRL=FOLDER installs it into an environment there (7 GB) and runs
these tests; it needs Python 3.12.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from conftest import make_tiny_model

from ...errors import GpuWorkerError
from ...progress import Progress
from ..conformance_test import LORA, Subject, Watched
from . import client
from .backend import TinkerBackend

PACKAGES = ["skyrl[jax,tinker]==0.4.0", "aiohttp", "psutil"]
OPTIONS = '{"max_lora_adapters": 5, "max_lora_rank": 8}'
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def python() -> Path:
    """Returns the Python of an environment with SkyRL."""
    given = os.environ.get("TRIALGATE_TEST_SKYRL")
    if not given:
        pytest.skip("set TRIALGATE_TEST_SKYRL=FOLDER to install SkyRL there and test against it")
    folder = Path(given)
    installed = folder / "bin/python"
    if not (folder / "ready").is_file():
        pyenv = sorted(Path.home().glob(".pyenv/versions/3.12.*/bin/python3"))
        # On the path pyenv may have a shim for it that does not work in this folder.
        base = next(map(str, pyenv), None) or shutil.which("python3.12")
        if base is None:
            pytest.skip("SkyRL needs Python 3.12, and this machine has none: install it")
        subprocess.run([base, "-m", "venv", str(folder)], check=True)
        done = subprocess.run([installed, "-m", "pip", "install", "-q", *PACKAGES], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"SkyRL cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        (folder / "ready").touch()
    return installed


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """The tiny model in float32, in which SkyRL then computes, and with the tokenizer that it asks for."""
    folder = make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")
    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(64)}, unk_token="t0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="t0").save_pretrained(folder)
    return folder


class SkyRL:
    """The server as two processes of one group: the API, and the engine that it starts with `uv run`."""

    def __init__(self, python: Path, model: Path, folder: Path) -> None:
        self.python, self.model, self.folder = python, model, folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        # It starts its engine by `uv run ... -m MODULE`. This environment has all that it needs.
        script = f'#!/bin/sh\nwhile [ "$1" != -m ]; do shift; done\nexec {python} "$@"\n'
        (folder / "bin").mkdir(parents=True)
        (folder / "bin/uv").write_text(script)
        (folder / "bin/uv").chmod(0o755)

    def start(self) -> None:
        options = {
            "--base-model": self.model,
            "--backend": "jax",
            "--backend-config": OPTIONS,
            "--host": "127.0.0.1",
            "--port": self.url.rsplit(":", 1)[-1],
            "--checkpoints-base": self.folder / "checkpoints",
            "--database-url": f"sqlite:///{self.folder}/tinker.db",
        }
        arguments = [str(each) for option in options.items() for each in option]
        environment = os.environ | {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": str(self.folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        # The shell stays, as the parent whose command has "--" before Python's arguments.
        parent = ["/bin/sh", "-c", f'shift; {self.python} "$@"; exit $?', "run", "--"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*parent, "-m", "skyrl.tinker.api", *arguments],
                cwd=self.folder,
                env=environment,
                start_new_session=True,
                stdout=log,
                stderr=log,
            )
        while self.process.poll() is None:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/api/v1/healthz").is_success:
                    return
            time.sleep(1)
        pytest.fail(f"SkyRL's server ended:\n{(self.folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def skyrl(python, model, tmp_path_factory):
    server = SkyRL(python, model, tmp_path_factory.mktemp("skyrl"))
    server.start()
    yield server
    server.kill()


def test_skyrls_jax_server_passes_the_conformance_suite_and_gives_the_local_trainers_weights(skyrl):
    environment = os.environ | {
        "TRIALGATE_TEST_TRAINER_SERVER": skyrl.url,
        "TRIALGATE_TEST_TRAINER_SERVER_MODEL": str(skyrl.model),
    }
    suites = [str(ROOT / "trialgate_gpu/backends" / name) for name in ("conformance_test.py", "tinker/parity_test.py")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not real", *suites],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]


@pytest.fixture(scope="module")
def whole(skyrl, tmp_path_factory):
    """A step that nothing disturbed: how to ask for it, and what it gave."""
    settings = {"trainer_server": {"url": skyrl.url, "model": None, "timeout": 600.0}} | LORA
    subject = Subject(TinkerBackend, settings, skyrl.model, tmp_path_factory.mktemp("home"))
    request = subject.request(subject.base()["checkpoint"])
    return subject, request, subject.make().train_step(request, Progress())


@pytest.mark.parametrize("phase", ["load checkpoint", "forward_backward", "optimizer", "write checkpoint"])
def test_a_step_whose_skyrl_server_is_killed_is_done_again_once_after_it_is_back(skyrl, whole, monkeypatch, phase):
    monkeypatch.setattr(client, "RECONNECT_SECONDS", 0.0)
    subject, request, expected = whole
    shutil.rmtree(expected["checkpoint"])
    before = subject.checkpoints()
    with pytest.raises(GpuWorkerError) as error:
        watched = Watched(lambda number, shown: skyrl.kill() if shown == phase else None)
        subject.make().train_step(request, watched)
    assert error.value.retryable
    assert subject.checkpoints() == before
    skyrl.start()
    again = subject.make().train_step(request, Progress())
    assert again["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert not again["reused"]
