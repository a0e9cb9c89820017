import numpy as np
import pytest

from conftest import two_groups

from ..pack import chain, make_packs
from .rounds import cost, make_rounds, units_of


def packs_of(rows, max_tokens):
    chains = [
        chain(
            number,
            np.array(row["token_ids"]),
            np.array(row["loss_mask"], bool),
            np.array(row["logprobs"], np.float32),
            1.0,
        )
        for number, row in enumerate(rows)
    ]
    return list(make_packs(chains, max_tokens))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("max_tokens", [8, 16, 64])
def test_ranks_make_equally_many_passes_and_together_compute_every_pack_once(size, max_tokens):
    packs = packs_of(two_groups(), max_tokens)
    of_rank = [make_rounds(packs, rank, size) for rank in range(size)]
    assert len({tuple((each.slots, each.has_prefix) for each in rounds) for rounds in of_rank}) == 1
    computed = [id(pack) for rounds in of_rank for each in rounds for pack in each.packs]
    assert sorted(computed) == sorted(map(id, packs))


def test_the_packs_of_a_common_prefix_are_on_one_rank():
    packs = packs_of(two_groups(), 8)
    assert any(pack.prefix is not None for pack in packs)
    ranks_of = {}
    for rank in (0, 1):
        for each in make_rounds(packs, rank, 2):
            for pack in each.packs:
                ranks_of.setdefault(id(pack.prefix), set()).add(rank)
    assert all(len(ranks) == 1 for prefix, ranks in ranks_of.items() if prefix != id(None))


def test_the_cost_of_the_fullest_rank_is_at_most_the_average_and_one_unit():
    packs = packs_of(two_groups() * 3, 8)
    units = units_of(packs)
    costs = [sum(cost(each.packs) for each in make_rounds(packs, rank, 2) if each.packs) for rank in (0, 1)]
    assert max(costs) <= sum(costs) / 2 + max(map(cost, units))
