"""Compares every update of a step with plain PyTorch: one sample at a time with autograd, no packs, no prefix."""

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from conftest import row, settings_with, write_batch

from .batch import read_batch
from .checkpoint import TrainerState
from .optimize import mini_batches, optimize
from .optimizer import FlatAdamW
from .pack import make_packs
from .policy import Policy
from .prepare import prepare
from .progress import Progress

OBJECTIVES = ("grpo", "gspo", "cispo", "rloo")
MODES = ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum-norm")
UPDATES = ({}, {"ppo_mini_batch_size": 3}, {"ppo_epochs": 2, "ppo_mini_batch_size": 2})
CORRECTIONS = ({"rollout_is": "token"}, {"rollout_is": "sequence", "rollout_rs": "token_k1"})
CASES = list(itertools.product(OBJECTIVES, MODES, UPDATES, CORRECTIONS))
SEED, PACK_TOKENS = 5, 40


def rows():
    """Returns two groups: shared prefixes, several turns, a trial with three samples, temperatures, companions."""
    generator = np.random.default_rng(3)
    made = []
    for group, size in (("g", 3), ("h", 2)):
        prompt = generator.integers(2, 60, 12).tolist()
        for trial_index in range(size):
            start = prompt + generator.integers(2, 60, 4).tolist()
            for _ in range(3 if (group, trial_index) == ("g", 1) else 1):
                tail = generator.integers(2, 60, 6 + 2 * trial_index).tolist()
                mask = [0] * len(start) + [int(i % 4 != 2) for i in range(len(tail))]
                companions = [[("reward", 0.3)]] if group == "h" else []
                made.append(
                    row(start, tail, float(generator.random()), group, f"{group}{trial_index}")
                    | {"loss_mask": mask, "temperature": [0.7, 1.0, 1.3][trial_index], "companions": companions}
                )
                made[-1]["rewards"] = [("reward", [0.1, 0.9, 0.4][trial_index])]
    return made


@pytest.fixture(scope="module")
def start(tiny_model, tmp_path_factory):
    """Returns the samples, as if an engine near the trainer's weights had sampled them."""
    policy = Policy(tiny_model, torch.device("cpu"), torch.float32)
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    samples = read_batch(*write_batch(tmp_path_factory.mktemp("batch"), rows()), 0)
    torch.manual_seed(1)
    made = []
    for sample in samples:
        logprobs = np.zeros(len(sample.token_ids), np.float32)
        found = plain_logprobs(model, sample).detach()
        logprobs[sample.loss_mask] = found + 0.5 * torch.randn(len(found))
        made.append(replace(sample, rollout_logprobs=np.minimum(logprobs, 0)))
    return policy, model, made


def plain_logprobs(model, sample):
    logits = model(torch.from_numpy(sample.token_ids)[None]).logits[0] / sample.temperature
    trained = torch.from_numpy(np.flatnonzero(sample.loss_mask))
    return logits.log_softmax(-1)[trained - 1, torch.from_numpy(sample.token_ids)[trained]]


def plain_advantages(samples, objective):
    result = []
    for sample in samples:
        rewards = {s.trial_id: s.rewards["reward"] for s in samples if s.group_id == sample.group_id}
        own = rewards.pop(sample.trial_id)
        others = torch.tensor([*rewards.values(), *(c["reward"] for c in sample.companions)], dtype=torch.float64)
        every = torch.cat([others, torch.tensor([own])])
        if objective == "rloo":
            result.append(own - others.mean())
        else:
            result.append((own - every.mean()) / (every.std() + 1e-6))
    return torch.stack(result)


def plain_loss(model, samples, advantages, starts, indices, settings):
    """Returns the loss of a mini-batch, and each token's weight, computed trial by trial."""
    tokens = {}
    for i in indices:
        trial = samples[i].trial_id
        tokens[trial] = tokens.get(trial, 0) + int(samples[i].loss_mask.sum())
    low, high = settings.clip_ratio_low, settings.clip_ratio_high
    total = torch.zeros(())
    for i in indices:
        sample, a = samples[i], advantages[i].float()
        logprobs = plain_logprobs(model, sample)
        rollout_logprobs = torch.from_numpy(sample.rollout_logprobs[sample.loss_mask])
        ratio = (logprobs - starts[i]).exp()
        if settings.objective == "gspo":
            ratio = ratio.log().mean().exp().expand(len(logprobs))
        if settings.objective == "cispo":
            loss = -a * ratio.detach().clamp(1 - low, 1 + high) * logprobs
        else:
            loss = torch.maximum(-a * ratio, -a * ratio.clamp(1 - low, 1 + high))
            if a < 0:
                loss = torch.minimum(loss, -a * settings.clip_ratio_c)
        gap = (starts[i] - rollout_logprobs).exp()
        weight = gap if settings.rollout_is == "token" else gap.prod().expand(len(gap))
        weight = weight.clamp(max=settings.rollout_is_threshold)
        if settings.rollout_rs:
            weight = torch.where((gap < 0.5) | (gap > 2.0), 0.0, weight)
        loss = (loss * weight).sum()
        if settings.loss_agg_mode == "token-mean":
            total = total + loss / sum(tokens.values())
        elif settings.loss_agg_mode == "seq-mean-token-mean":
            total = total + loss / tokens[sample.trial_id] / len(tokens)
        else:
            total = total + loss / settings.loss_scale_factor / len(tokens)
    return total


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_loss_and_gradient_of_every_update_equal_those_of_a_plain_pytorch_implementation(start, monkeypatch, case):
    objective, mode, updates, corrections = case
    settings = settings_with(
        objective=objective,
        loss_agg_mode=mode,
        loss_scale_factor=20,
        optim={"lr": 3e-3},
        clip_ratio_low=0.05,
        clip_ratio_high=0.08,
        **updates,
        **corrections,
    )
    policy, model, samples = start
    plain = copy.deepcopy(model)
    policy.master.copy_(torch.cat([p.detach().reshape(-1) for p in plain.parameters()]))
    policy.refresh()

    updates_made, losses = [], []
    step = FlatAdamW.step

    def recorded_step(self, gradient, optim):
        updates_made.append((policy.master.clone(), gradient.clone()))
        return step(self, gradient, optim)

    monkeypatch.setattr(FlatAdamW, "step", recorded_step)
    prepared = prepare(samples, settings, 0)
    assert any(pack.prefix is not None for pack in make_packs(prepared.learned, PACK_TOKENS))
    metrics = optimize(
        TrainerState(policy, FlatAdamW(policy.master, policy.decayed())),
        prepared,
        settings,
        PACK_TOKENS,
        SEED,
        Progress(),
    )

    advantages = plain_advantages(samples, objective)
    starts = [plain_logprobs(plain, s).detach() for s in samples]
    for epoch in range(settings.ppo_epochs):
        for indices in mini_batches(prepared, settings, [settings.seed, SEED, epoch]):
            # AdamW would turn a rounding difference in one update into a larger one in the next.
            weights, found = updates_made[len(losses)]
            torch.nn.utils.vector_to_parameters(weights, plain.parameters())
            plain.zero_grad()
            loss = plain_loss(plain, samples, advantages, starts, indices, settings)
            loss.backward()
            losses.append(loss.item())
            expected = torch.cat([p.grad.reshape(-1) for p in plain.parameters()])
            assert torch.linalg.vector_norm(found - expected) <= 2e-6 * torch.linalg.vector_norm(expected)
    assert len(updates_made) == len(losses) == metrics["actor/updates"]
    # The terms of a loss can cancel: its rounding error then scales with the advantages, not with the loss.
    scale = max(np.abs(losses).max(), float(advantages.abs().max()))
    assert abs(metrics["actor/pg_loss"] - np.mean(losses)) <= 5e-6 * scale
    assert metrics["rollout_corr/log_ratio_max"] > 0.5
