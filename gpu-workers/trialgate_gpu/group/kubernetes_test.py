"""Tests the manifest that starts ranks in a Kubernetes cluster, as far as that can be without a cluster."""

import asyncio
import os
import shlex
import socket
import subprocess
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

from conftest import two_groups

from ..__main__ import group_options, parse_arguments
from ..processes import is_alive
from ..progress import Progress
from . import group_test
from .group_test import base_request, parent_of, pids, with_backend

MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes-ranks.yaml"
OBJECTS = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text())}
hold = group_test.hold
# Answers for a cluster of two pods, which are processes of this machine.
KUBECTL = """#!/bin/sh
case "$1" in
  get) echo pod/one; echo pod/two ;;
  exec) shift 4; unset TRIALGATE_GROUP_TOKEN; exec "$@" ;;
esac
"""


def container(kind):
    return OBJECTS[kind]["spec"]["template"]["spec"]["containers"][0]


def options():
    given = [each.replace("$(POD_IP)", "10.0.0.1") for each in container("Deployment")["args"]]
    return group_options(parse_arguments(given))


def agent_of(launch):
    words = shlex.split(launch)
    return get_args_parser().parse_args([*words[words.index("torch.distributed.run") + 1 :], "script"])


def test_the_gpu_worker_takes_the_manifests_flags_and_asks_for_as_many_ranks_as_the_pods_have_gpus():
    given, agent, job = options(), agent_of(options().launch), OBJECTS["Job"]["spec"]
    assert job["completionMode"] == "Indexed"
    assert int(agent.nnodes) == job["completions"] == job["parallelism"]
    assert int(agent.nproc_per_node) == container("Job")["resources"]["limits"]["nvidia.com/gpu"]
    assert given.ranks == int(agent.nnodes) * int(agent.nproc_per_node)
    assert given.address == "10.0.0.1:29400"


def test_the_agents_meet_at_a_name_that_the_service_gives_the_first_pod_and_share_the_home():
    name, pods = OBJECTS["Job"]["metadata"]["name"], OBJECTS["Job"]["spec"]["template"]["spec"]
    service = OBJECTS["Service"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == {"job-name": name}
    assert pods["subdomain"] == service["metadata"]["name"]
    assert agent_of(options().launch).rdzv_endpoint.startswith(f"{name}-0.{pods['subdomain']}:")
    assert f"job-name={name}" in OBJECTS["ConfigMap"]["data"]["start"]
    home = container("Deployment")["args"][container("Deployment")["args"].index("--home") + 1]
    for kind in ("Job", "Deployment"):
        assert home in [each["mountPath"] for each in container(kind)["volumeMounts"]]


def test_a_launch_with_another_number_of_running_pods_than_it_needs_says_so_and_fails(tmp_path):
    kubectl, start = tmp_path / "kubectl", tmp_path / "start"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    start.write_text(OBJECTS["ConfigMap"]["data"]["start"])
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ended = subprocess.run(["sh", start, "3", "true"], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("2 pods of job trialgate-ranks are running, and the launch needs 3")
    words = shlex.split(options().launch)
    assert int(words[2]) == OBJECTS["Job"]["spec"]["completions"]


@pytest.mark.processes
def test_the_launch_command_starts_one_group_in_the_pods_and_ends_with_it(make_run, hold, tmp_path, monkeypatch):
    kubectl, start = tmp_path / "bin" / "kubectl", tmp_path / "start"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    start.write_text(OBJECTS["ConfigMap"]["data"]["start"])
    monkeypatch.setenv("PATH", f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = options().launch.replace("/launch/start", shlex.quote(str(start)))
    launch = launch.replace("--nproc-per-node 8", "--nproc-per-node 1")
    launch = launch.replace("trialgate-ranks-0.trialgate-ranks:29500", f"127.0.0.1:{port}")
    run = make_run()

    async def work(backend):
        base = await backend.load_base(base_request(run), Progress())
        made = await backend.train_step(run.request(base["checkpoint"], two_groups()), Progress())
        parents = {parent_of(rank.pid) for rank in backend.group.ranks.values()}
        assert set(backend.group.ranks) == {0, 1} and len(parents) == 2
        started = [*parents, *pids(backend)]
        await backend.end()
        assert not any(is_alive(pid) for pid in started)
        return made

    made = asyncio.run(with_backend(work, ranks=2, launch=launch))
    assert made["metrics"]["actor/updates"] == 1
