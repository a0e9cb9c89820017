import numpy as np
import pytest
import torch

from conftest import row, write_batch

from .batch import read_batch
from .errors import GpuWorkerError
from .head import HeadGradient, backward_through_head, token_logprobs
from .pack import chain, make_packs
from .policy import Policy

PROMPT = list(range(3, 13))


def float_policy(tiny_model):
    policy = Policy(tiny_model, torch.device("cpu"))
    policy.model.float()
    return policy


@torch.no_grad()
def next_logits(policy, ids):
    """Returns [vocabulary]."""
    trained = np.arange(len(ids) + 1) == len(ids)
    (pack,) = make_packs([chain(0, np.array([*ids, 0]), trained, np.zeros(len(ids) + 1, np.float32), 1.0)], 10_000)
    return policy.head(policy.infer(pack)[pack.nodes[-1]])


@torch.no_grad()
def sample_top_p(policy, top_p, temperature, length, generator):
    """Returns (ids, log-probabilities over the nucleus, nucleus) of a reply, as an engine samples and returns them."""
    ids, logprobs, masks = list(PROMPT), [], []
    for _ in range(length):
        logits = next_logits(policy, ids) / temperature
        ordered, order = logits.softmax(0).sort(descending=True)
        nucleus = order[: int((ordered.cumsum(0) < top_p).sum()) + 1]
        among = logits[nucleus].log_softmax(0)
        choice = int(torch.multinomial(among.exp(), 1, generator=generator))
        ids.append(int(nucleus[choice]))
        logprobs.append(float(among[choice]))
        masks.append(np.sort(nucleus.numpy()))
    return ids, logprobs, masks


def sampled_chains(policy, masked):
    """Returns replies at two temperatures that share a prompt, and the first of them again without masks."""
    generator = torch.Generator().manual_seed(0)
    chains = []
    for index in range(6):
        temperature = (1.0, 0.7)[index % 2]
        ids, logprobs, masks = sample_top_p(policy, 0.8, temperature, 20, generator)
        nothing = [None] * len(PROMPT)
        old = np.array([0.0] * len(PROMPT) + logprobs, np.float32)
        trained = np.arange(len(ids)) >= len(PROMPT)
        chains.append(chain(index, np.array(ids), trained, old, temperature, nothing + masks if masked else None))
    return chains


def ratios(policy, chains):
    found = []
    for pack in make_packs(chains, 10_000):
        old = torch.from_numpy(pack.rollout_logprobs)
        found += (token_logprobs(policy.infer(pack), policy.head, pack) - old).exp().tolist()
    return found


def test_the_trainer_reproduces_the_log_probabilities_of_top_p_sampling_only_with_the_sampling_mask(tiny_model):
    policy = float_policy(tiny_model)
    np.testing.assert_allclose(ratios(policy, sampled_chains(policy, masked=True)), 1, atol=1e-4)
    assert abs(np.mean(ratios(policy, sampled_chains(policy, masked=False))) - 1) > 0.1


def test_the_trainers_gradient_under_a_sampling_mask_equals_that_of_pytorch_autograd(tiny_model):
    policy = float_policy(tiny_model)
    chains = sampled_chains(policy, masked=True)
    chains.append(chain(len(chains), *plain(chains[0])))
    (pack,) = make_packs(chains, 10_000)
    hidden = policy.infer(pack).requires_grad_()
    weight = policy.head.weight.detach().requires_grad_()
    logits = (hidden[pack.nodes] @ weight.T) / torch.from_numpy(pack.temperatures).unsqueeze(1)
    for i, ids in enumerate(pack.sampling_mask or []):
        if ids is not None:
            excluded = torch.ones(logits.shape[1], dtype=torch.bool).index_fill_(0, torch.from_numpy(ids), False)
            logits[i] = logits[i].masked_fill(excluded, -torch.inf)
    logprobs = logits.log_softmax(1)[torch.arange(len(pack.targets)), torch.from_numpy(pack.targets)]
    (logprobs * torch.linspace(-1, 1, len(logprobs))).sum().backward()
    slopes = torch.linspace(-1, 1, len(logprobs))
    weight_gradient = torch.zeros_like(weight)
    found, entropies = backward_through_head(
        hidden.detach(), policy.head, pack, lambda tokens, _: slopes[tokens], HeadGradient(weight_gradient)
    )
    entropy = torch.distributions.Categorical(logits=logits.detach()).entropy()
    torch.testing.assert_close(entropies, entropy, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found, hidden.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(weight_gradient, weight.grad, atol=1e-5, rtol=1e-4)


def plain(masked):
    """Returns the arguments of a chain like `masked` without its masks."""
    ids = np.append(masked.inputs, masked.targets[-1])
    trained = np.isin(np.arange(len(ids)), masked.predictors + 1)
    return ids, trained, np.zeros(len(ids), np.float32), masked.temperature


def test_a_batch_whose_sampling_mask_lacks_a_sampled_token_is_refused(tmp_path):
    masks = [None] * 3 + [[4, 7], [7, 9]]
    path, sha256 = write_batch(tmp_path, [row([1, 2, 3], [4, 5], 1.0, "g", "t", sampling_mask=masks)])
    with pytest.raises(GpuWorkerError, match="sampling mask that lacks a sampled token"):
        read_batch(path, sha256, 0)
    masks[4] = [9, 5]
    path, sha256 = write_batch(tmp_path, [row([1, 2, 3], [4, 5], 1.0, "g", "t", sampling_mask=masks)])
    (sample,) = read_batch(path, sha256, 0)
    read = [None if ids is None else ids.tolist() for ids in sample.sampling_mask or []]
    assert read == [None] * 3 + [[4, 7], [5, 9]]
