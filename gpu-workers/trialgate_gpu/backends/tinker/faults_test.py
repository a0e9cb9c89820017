"""Shows what a step says and leaves when its server misbehaves."""

import functools
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

import tinker_server
from conftest import make_tiny_model, row

from ...errors import Cancelled, GpuWorkerError
from ...manifest import MANIFEST, read_manifest
from ...progress import Progress
from ..conformance_test import LORA, Subject, Watched
from . import client
from .backend import TinkerBackend

pytestmark = pytest.mark.processes
NO_FAULTS = vars(tinker_server.parse_arguments(["", "--state", "."]))
KEPT = ("model", "state", "port")


@pytest.fixture(scope="module")
def listening(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    model = make_tiny_model(folder / "model")
    server, http = tinker_server.start(tinker_server.parse_arguments([str(model), "--state", str(folder / "state")]))
    threading.Thread(target=http.serve_forever, daemon=True).start()
    yield server, f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()


def reset(server):
    """The faults of one test do not reach the next."""
    vars(server.faults).update({name: value for name, value in NO_FAULTS.items() if name not in KEPT})
    server.operations.clear()
    server.models.clear()


def subject_of(server, url, home):
    settings = {"trainer_server": {"url": url, "model": None, "timeout": 600.0}} | LORA
    return Subject(TinkerBackend, settings, Path(server.folder), home, server)


@pytest.fixture
def subject(listening, tmp_path):
    server, url = listening
    reset(server)
    return subject_of(server, url, tmp_path)


def step(subject, request, progress=None):
    return subject.make().train_step(request, progress or Progress())


def refusal(subject, work):
    """Returns the error of `work`, which must change no checkpoint."""
    before = subject.checkpoints() if (subject.home / "checkpoints").exists() else []
    with pytest.raises(GpuWorkerError) as found:
        work()
    after = subject.checkpoints() if (subject.home / "checkpoints").exists() else []
    assert after == before
    return found.value


def count_from_here(subject):
    subject.server.operations.clear()


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ({"key": "tml-secret"}, "TrainerServerKey", "`trainer_keys`"),
        ({"refuse_sdk": "please update to 0.40"}, "TrainerServerProtocol", "please update to 0.40"),
        ({"refuse_protobuf": True}, "TrainerServerProtocol", "does not take a request of level 0.25"),
        ({"json_only": True}, "TrainerServerProtocol", "older than SDK 0.25"),
        ({"short_answers": True}, "TrainerServerProtocol", "does not follow Tinker's API"),
        ({"odd_loss": True}, "TrainerServerProtocol", "gradients would be wrong"),
    ],
)
def test_a_server_that_a_run_cannot_use_is_refused_at_the_start_with_what_to_do(subject, fault, kind, words):
    vars(subject.server.faults).update(fault)
    error = refusal(subject, subject.base)
    assert error.kind == kind
    assert words in str(error)
    assert not error.retryable


def test_a_server_without_tinkers_routes_is_refused(subject):
    class Other(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(404)

        def log_message(self, *_):
            pass

    http = HTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    subject.settings["trainer_server"]["url"] = f"http://127.0.0.1:{http.server_address[1]}"
    error = refusal(subject, subject.base)
    http.shutdown()
    assert error.kind == "TrainerServerProtocol"
    assert "has no route" in str(error)


def test_a_server_of_another_model_is_refused_with_the_models_that_it_serves(subject):
    subject.settings["trainer_server"]["model"] = "Qwen/Qwen3-8B"
    error = refusal(subject, subject.base)
    assert error.kind == "BadSettings"
    assert f"serves {subject.model}, not Qwen/Qwen3-8B" in str(error)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lora_rank": 0}, "set `lora_rank`"),
        ({"lora_alpha": 16.0}, "set `lora_alpha: 32`"),
        ({"target_modules": ["q_proj"]}, "`target_modules` is all-linear"),
        ({"enable_router_replay": True}, "replays no experts"),
    ],
)
def test_settings_that_the_server_cannot_carry_are_refused(subject, settings, words):
    subject.settings |= settings
    assert words in str(refusal(subject, subject.base))


def test_samples_of_another_temperature_are_refused(subject):
    rows = [row([5], [6], 1.0, "g", "a", temperature=0.7), row([5], [7], 0.0, "g", "b", temperature=0.7)]
    request = subject.request(subject.base()["checkpoint"], rows)
    assert "temperature 0.7" in str(refusal(subject, lambda: step(subject, request)))


@pytest.mark.gate
def test_a_key_is_sent_to_its_host_and_stands_in_no_file(subject, monkeypatch):
    subject.server.faults.key = "tml-hunter2"
    host = subject.settings["trainer_server"]["url"].removeprefix("http://")
    monkeypatch.setenv("TRIALGATE_TRAINER_KEYS", json.dumps([f"{host}=TINKER_KEY"]))
    assert "TINKER_KEY is not set" in str(refusal(subject, subject.base))
    monkeypatch.setenv("TINKER_KEY", "tml-hunter2\n")
    step(subject, subject.request(subject.base()["checkpoint"]))
    files = [path for path in subject.home.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert not any(b"hunter2" in path.read_bytes() for path in files)
    monkeypatch.setenv("TRIALGATE_TRAINER_KEYS", json.dumps(["other.example=TINKER_KEY"]))
    assert refusal(subject, lambda: step(subject, subject.request(subject.base()["checkpoint"], seed=1))).kind == (
        "TrainerServerKey"
    )


def test_a_key_is_read_from_a_file(subject, monkeypatch, tmp_path):
    subject.server.faults.key = "tml-hunter2"
    host = subject.settings["trainer_server"]["url"].removeprefix("http://")
    monkeypatch.setenv("TRIALGATE_TRAINER_KEYS", json.dumps([f"{host}={tmp_path}/key"]))
    assert "cannot be read" in str(refusal(subject, subject.base))
    (tmp_path / "key").write_text("tml-hunter2\n")
    assert subject.base()["canary"]


@pytest.mark.parametrize(
    ("location", "same"),
    [
        ("/archive", True),
        ("https://server:8443/archive", True),
        ("http://server:8443/archive", False),
        ("https://server/archive", False),
        ("https://other:8443/archive", False),
    ],
)
def test_only_the_servers_own_scheme_host_and_port_get_its_key_with_a_redirect(location, same):
    server = httpx.URL("https://server:8443")
    assert client.is_same_origin(server.join(location), server) == same


@pytest.fixture(scope="module")
def expected(listening, tmp_path_factory):
    """The step as it is without faults."""
    server, url = listening
    reset(server)
    other = subject_of(server, url, tmp_path_factory.mktemp("expected"))
    return step(other, other.request(other.base()["checkpoint"]))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("operation", ["load_weights", "forward", "forward_backward", "optim_step", "save_weights"])
def test_a_step_whose_server_forgets_its_model_is_done_again_with_the_same_weights(
    subject, expected, operation, strict
):
    request = subject.request(subject.base()["checkpoint"])
    count_from_here(subject)
    subject.server.faults.forget, subject.server.faults.strict = f"{operation}:1", strict
    error = refusal(subject, lambda: step(subject, request))
    assert error.retryable
    assert "the step begins again" in str(error)
    assert step(subject, request)["checkpoint_sha256"] == expected["checkpoint_sha256"]


@pytest.mark.parametrize("operation", ["forward", "forward_backward", "optim_step", "save_weights"])
def test_a_server_that_never_gives_a_result_is_given_up_and_the_step_is_done_again(subject, expected, operation):
    request = subject.request(subject.base()["checkpoint"])
    request["trainer"]["trainer_server"] = request["trainer"]["trainer_server"] | {"timeout": 0.1}
    count_from_here(subject)
    subject.server.faults.silent = f"{operation}:1"
    error = refusal(subject, lambda: step(subject, request))
    assert error.kind == "TrainerServerSilent"
    assert f"has not finished {operation}" in str(error)
    assert error.retryable
    request["trainer"]["trainer_server"] = subject.settings["trainer_server"]
    subject.server.faults.silent = None
    assert step(subject, request)["checkpoint_sha256"] == expected["checkpoint_sha256"]


def test_a_step_that_waits_for_a_silent_server_can_be_cancelled(subject):
    request = subject.request(subject.base()["checkpoint"])
    before = subject.checkpoints()
    count_from_here(subject)
    subject.server.faults.silent = "forward_backward:1"
    progress = Watched(lambda number, phase: None)
    failure = []

    def run():
        try:
            step(subject, request, progress)
        except Cancelled:
            failure.append("cancelled")

    thread = threading.Thread(target=run)
    thread.start()
    while "forward_backward" not in progress.phases:
        thread.join(0.05)
    progress.cancel()
    # Without the cancellation it would wait for `trainer_server.timeout`, ten minutes.
    thread.join(60)
    assert failure == ["cancelled"]
    assert subject.checkpoints() == before
    assert subject.server.models == {}


@pytest.mark.gate
@pytest.mark.parametrize("operation", ["forward_backward", "optim_step"])
def test_a_request_whose_answer_is_lost_is_repeated_and_done_once(subject, expected, operation):
    request = subject.request(subject.base()["checkpoint"])
    count_from_here(subject)
    subject.server.faults.cut = operation
    made = step(subject, request)
    assert made["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert subject.server.operations["cuts"]
    assert subject.server.operations["optim_step"] == 1


@pytest.mark.parametrize("operation", ["create_model", "load_weights", "save_weights", "save_weights_for_sampler"])
def test_a_lost_answer_to_a_request_that_may_not_be_repeated_ends_the_attempt_and_the_step_is_done_again(
    subject, expected, operation
):
    request = subject.request(subject.base()["checkpoint"])
    count_from_here(subject)
    subject.server.faults.cut = operation
    error = refusal(subject, lambda: step(subject, request))
    assert error.kind == "TrainerServerUnreachable"
    assert error.retryable
    assert step(subject, request)["checkpoint_sha256"] == expected["checkpoint_sha256"]


def test_a_server_that_does_not_listen_is_named(subject, monkeypatch):
    monkeypatch.setattr(client, "RECONNECT_SECONDS", 0.0)
    subject.settings["trainer_server"]["url"] = "http://127.0.0.1:9"
    error = refusal(subject, subject.base)
    assert error.kind == "TrainerServerUnreachable"
    assert "http://127.0.0.1:9" in str(error)
    assert error.retryable


def test_a_torn_archive_ends_the_attempt_and_leaves_no_checkpoint_and_no_weights_on_the_server(subject, expected):
    request = subject.request(subject.base()["checkpoint"])
    before = set(subject.server.state.iterdir())
    subject.server.faults.torn_archive = True
    assert refusal(subject, lambda: step(subject, request)).retryable
    assert set(subject.server.state.iterdir()) == before
    subject.server.faults.torn_archive = False
    assert step(subject, request)["checkpoint_sha256"] == expected["checkpoint_sha256"]


def test_a_step_that_is_skipped_for_a_weight_of_the_servers_adapter_leaves_the_files_of_its_parent(subject):
    base = Path(subject.base()["checkpoint"])
    subject.server.faults.nan_adapter = True
    before = set(subject.server.state.iterdir())
    made = step(subject, subject.request(str(base)))
    assert "adapter is not finite" in made["skipped"]
    assert set(subject.server.state.iterdir()) == before
    files = [
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (base, Path(made["checkpoint"]))
    ]
    for each in files:
        del each[MANIFEST]
    assert files[0] == files[1]


def test_a_server_that_has_lost_the_parents_weights_is_refused_for_good(subject):
    base = subject.base()["checkpoint"]
    record = read_manifest(Path(base)).trainer_server
    subject.server.file_of(record["weights"]).unlink()
    error = refusal(subject, lambda: step(subject, subject.request(base)))
    assert error.kind == "MissingCheckpoint"
    assert record["weights"] in str(error)
    assert not error.retryable


def test_gradients_that_an_abandoned_attempt_left_do_not_reach_the_next_one(subject, expected):
    base = subject.base()["checkpoint"]
    request = subject.request(base)

    def cancel(number, phase):
        if phase == "optimizer":
            watched.cancel()

    watched = Watched(cancel)
    with pytest.raises(Cancelled):
        step(subject, request, watched)
    assert step(subject, request)["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert subject.server.models == {}


def test_the_server_keeps_the_weights_of_the_versions_that_the_run_keeps_and_deletes_the_others(subject):
    before = set(subject.server.state.iterdir())
    made = [subject.base()["checkpoint"]]
    for version in range(1, 6):
        request = subject.request(made[-1], version=version, keep_checkpoints=2)
        made.append(step(subject, request)["checkpoint"])
    left = {Path(folder).name for folder in made if Path(folder).exists()}
    kept = {read_manifest(Path(f)).trainer_server["weights"] for f in made if Path(f).exists()}
    assert len(left) == 3
    own = set(subject.server.state.iterdir()) - before
    assert own == {subject.server.file_of(weights) for weights in kept}


def serve(model, state, *faults, port=0):
    """Starts the server as a process of its own. Returns the process and its URL."""
    command = [sys.executable, tinker_server.__file__, str(model), "--state", str(state), "--port", str(port), *faults]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("operation", ["load_weights", "forward_backward", "optim_step", "save_weights"])
def test_a_step_whose_server_is_killed_is_done_again_once_after_the_server_is_back(
    subject, expected, operation, monkeypatch, tmp_path
):
    monkeypatch.setattr(client, "RECONNECT_SECONDS", 0.0)
    port = 0
    # Version 0 measures the server with three updates, and saves.
    number = {"forward_backward": 4, "optim_step": 4, "save_weights": 2, "load_weights": 1}[operation]
    for fault in (["--kill", f"{operation}:{number}"], []):
        process, url = serve(subject.model, tmp_path / "state", *fault, port=port)
        port = int(url.rsplit(":", 1)[-1])
        try:
            if fault:
                subject.settings["trainer_server"]["url"] = url
                base = subject.base()["checkpoint"]
                request = subject.request(base)
                assert refusal(subject, functools.partial(step, subject, request)).retryable
                assert process.wait() == -9
            else:
                made = step(subject, request)
        finally:
            process.kill()
            process.wait()
    assert made["checkpoint_sha256"] == expected["checkpoint_sha256"]
    assert not made["reused"]
