import pytest

from .__main__ import group_options, parse_arguments


def test_offloading_is_passed_to_several_ranks_and_refused_for_one(capsys):
    assert "--cpu-offload" in group_options(parse_arguments(["--ranks", "2", "--cpu-offload"])).options
    with pytest.raises(SystemExit):
        parse_arguments(["--cpu-offload"])
    assert "needs two ranks or more" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["node", "node:", ":29400", "node:port"])
def test_an_address_for_ranks_without_host_or_port_is_refused_at_the_start(capsys, monkeypatch, address):
    monkeypatch.setenv("TRIALGATE_GROUP_ADDRESS", address)
    with pytest.raises(SystemExit):
        parse_arguments([])
    assert f"--group-address: expected HOST:PORT, found '{address}'" in capsys.readouterr().err
