"""Tests the sender of weights against receivers in threads. weight_transfer_real_test.py shows it with vLLM."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
from safetensors.torch import save_file
from torch.distributed import TCPStore

from .weight_sender import GlooSender, Stopped, address_towards, as_bytes, join_group

PATIENCE = timedelta(seconds=20)
TENSORS = {
    "bfloat16": torch.arange(300, dtype=torch.bfloat16).reshape(3, 100),
    "float32": torch.linspace(-1, 1, 7),
    "float8": torch.arange(8, dtype=torch.float32).to(torch.float8_e4m3fn),
    "scalar": torch.tensor(5, dtype=torch.int64),
    "bool": torch.tensor([True, False, True]),
    "empty": torch.zeros(0, 4),
}


@pytest.fixture
def checkpoint(tmp_path):
    """Returns a folder with two weight files, and the trainer's state in a folder of its own, which is not sent."""
    names = list(TENSORS)
    save_file({name: TENSORS[name] for name in names[:3]}, tmp_path / "model-1.safetensors")
    save_file({name: TENSORS[name] for name in names[3:]}, tmp_path / "model-2.safetensors")
    (tmp_path / "trainer").mkdir()
    save_file({"master": torch.zeros(10)}, tmp_path / "trainer" / "master.safetensors")
    return str(tmp_path)


def join(init_info, rank=1):
    host, port, size = init_info["host"], init_info["port"], init_info["world_size"]
    store = TCPStore(host, port, size, False, PATIENCE)
    return join_group(store, rank, size, address_towards(host), PATIENCE)


def receive(init_info, update_info, rank=1, most=None):
    group = join(init_info, rank)
    received = {}
    for name, dtype, shape in zip(*(update_info[key] for key in ("names", "dtypes", "shapes")), strict=True):
        received[name] = tensor = torch.empty(shape, dtype=getattr(torch, dtype))
        if tensor.numel() > 0:
            group.broadcast(as_bytes(tensor), 0).wait()
        if len(received) == most:
            break
    return received


def test_every_worker_receives_every_tensor_of_the_model_in_its_own_dtype(checkpoint):
    sender = GlooSender(checkpoint, "localhost", 2, PATIENCE)
    with ThreadPoolExecutor() as threads:
        workers = [threads.submit(receive, sender.init_info, sender.update_info, rank) for rank in (1, 2)]
        sender.join()
        sender.send()
        for worker in workers:
            received = worker.result()
            assert received.keys() == TENSORS.keys()
            assert all(
                as_bytes(received[n]).equal(as_bytes(t)) and received[n].shape == t.shape for n, t in TENSORS.items()
            )


def test_a_worker_whose_sender_stops_gets_an_error_and_does_not_wait(checkpoint):
    sender = GlooSender(checkpoint, "localhost", 1, PATIENCE)
    with ThreadPoolExecutor() as threads:
        worker = threads.submit(receive, sender.init_info, sender.update_info)
        sender.join()
        sender.stop()
        with pytest.raises(Stopped):
            sender.send()
        with pytest.raises(RuntimeError) as caught:
            worker.result()
        assert "Timed out" not in str(caught.value)


def test_a_sender_whose_worker_is_gone_fails(checkpoint, tmp_path):
    save_file({f"t{i}": torch.zeros(1 << 20) for i in range(8)}, tmp_path / "model-3.safetensors")
    sender = GlooSender(checkpoint, "localhost", 1, PATIENCE)
    with ThreadPoolExecutor() as threads:
        worker = threads.submit(receive, sender.init_info, sender.update_info, most=2)
        sender.join()
        with pytest.raises(RuntimeError):
            sender.send()
        assert len(worker.result()) == 2


def test_a_sender_stops_waiting_for_workers_when_it_is_told_to(checkpoint):
    sender = GlooSender(checkpoint, "localhost", 1, PATIENCE)
    threading.Timer(0.05, sender.stop).start()
    with pytest.raises(Stopped):
        sender.join()


def test_a_sender_does_not_wait_for_workers_for_ever(checkpoint):
    with pytest.raises(TimeoutError, match="1 workers"):
        GlooSender(checkpoint, "localhost", 1, timedelta(seconds=0.1)).join()
