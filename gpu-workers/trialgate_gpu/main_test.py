import pytest

from .__main__ import group_options, parse_arguments


def test_offloading_is_passed_to_the_ranks():
    assert "--cpu-offload" in group_options(parse_arguments(["--cpu-offload"])).options
    assert "--cpu-offload" not in group_options(parse_arguments([])).options


@pytest.mark.parametrize("address", ["node", "node:", ":29400", "node:port"])
def test_an_address_for_ranks_without_host_or_port_is_refused_at_the_start(capsys, monkeypatch, address):
    monkeypatch.setenv("TRIALGATE_GROUP_ADDRESS", address)
    with pytest.raises(SystemExit):
        parse_arguments([])
    assert f"--group-address: expected HOST:PORT, found '{address}'" in capsys.readouterr().err
