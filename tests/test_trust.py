"""Code that a saved run or plan names runs only if the user knows it."""

from __future__ import annotations

import sys

import pytest

from paceline.errors import InputError
from paceline.trust import check_code, trusting

NET = """from torch import nn
print("imported")
def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A module that can be imported, but lies outside the current directory."""
    folder, here = tmp_path / "elsewhere", tmp_path / "here"
    folder.mkdir()
    here.mkdir()
    (folder / "foreign_net.py").write_text(NET)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, "foreign_net", raising=False)
    monkeypatch.chdir(here)
    yield folder
    sys.modules.pop("foreign_net", None)


@pytest.mark.parametrize("network", ["sys:exit", "os:abort", "json.tool:main", "foreign_net:build"])
def test_a_module_from_elsewhere_needs_trust(elsewhere, network):
    with pytest.raises(InputError, match=f"would run code from the module {network.split(':')[0]} .*give `trust=True`"):
        check_code({"network": network}, "runs/a")
    assert "foreign_net" not in sys.modules, "asking does not import it"
    with trusting(True):
        check_code({"network": network}, "runs/a")
    with trusting(False, [network]):
        check_code({"network": network}, "runs/a")
    with pytest.raises(InputError), trusting(False, ["other:build"]):
        check_code({"network": network}, "runs/a")


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "lenet5", "data": "digits:50"},
        {"data": "text:book.txt"},
        {"data": "csv:table.csv?target=label"},
        {"optimizer": "torch.optim:RAdam"},
        {"exchange": "topk:0.1", "correction": "constant:0.04"},
        {"network": "object:mine"},
        {"network": "own_net:build"},
    ],
)
def test_what_is_not_asked_about(elsewhere, settings):
    from pathlib import Path

    Path("own_net.py").write_text(NET)
    check_code(settings, "runs/a")


def test_where_a_run_was_made_its_own_modules_need_no_trust(elsewhere):
    check_code({"network": "foreign_net:build"}, "runs/a", made_in=str(elsewhere))
    for made_in in (str(elsewhere.parent), "/", str(elsewhere / "inner")):
        with pytest.raises(InputError, match="give `trust=True`"):
            check_code({"network": "foreign_net:build"}, "runs/a", made_in=made_in)


def test_no_record_makes_a_module_of_python_or_an_installed_one_its_own(elsewhere):
    import json as standard
    from pathlib import Path

    import msgspec

    for module in (standard, msgspec):
        made_in = str(Path(module.__file__).parent.parent)
        with pytest.raises(InputError, match="give `trust=True`"):
            check_code({"network": f"{module.__name__}:loads"}, "runs/a", made_in=made_in)


def test_a_run_is_evaluated_from_another_directory_without_trust_if_its_code_lies_where_it_was_made(
    paceline, elsewhere, monkeypatch
):
    monkeypatch.chdir(elsewhere)
    assert paceline("train", "foreign_net:build", "--data", "digits", "--epochs", "1", "--out", "../here/run").code == 0
    monkeypatch.chdir(elsewhere.parent / "here")
    assert paceline("evaluate", "run").code == 0
    assert paceline("train", "--resume", "run", "--epochs", "2").code == 0
    assert paceline("evaluate", "run").code == 0, "resuming elsewhere does not change where it was made"
    assert paceline("verify", "run", "--device", "L4").code == 0


def test_a_saved_run_is_resumed_evaluated_and_verified_with_trust_only(paceline, elsewhere, monkeypatch):
    monkeypatch.chdir(elsewhere.parent)
    assert paceline("train", "foreign_net:build", "--data", "digits", "--epochs", "1", "--out", "here/run").code == 0
    monkeypatch.chdir(elsewhere.parent / "here")
    sys.modules.pop("foreign_net", None)
    for words in (
        ["evaluate", "run"],
        ["train", "--resume", "run", "--epochs", "2"],
        ["verify", "run", "--device", "L4"],
    ):
        assert "would run code from the module foreign_net" in paceline(*words).refused()
        assert "foreign_net" not in sys.modules
    assert paceline("evaluate", "run", "--trust").code == 0
    assert paceline("train", "foreign_net:build", "--data", "digits", "--resume", "run", "--epochs", "2").code == 0
    assert paceline("train", "--resume", "run", "--epochs", "3", "--trust").code == 0


def test_a_plan_that_names_code_needs_trust(elsewhere):
    from types import SimpleNamespace

    import paceline.planning.running as running
    from paceline.api.planned import as_planned
    from paceline.workload import Workload

    pick = SimpleNamespace(candidate=SimpleNamespace(tensor=1, shard="none"))
    plan = SimpleNamespace(workload=Workload(network="foreign_net:build"), pipeline=None, pick=pick)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "planned_settings", lambda *_, **__: ({}, None, 1))
        patch.setattr(running, "local_hardware", lambda: None)
        with pytest.raises(InputError, match="the plan would run code from the module foreign_net"):
            as_planned(plan, None, None, {})
        with trusting(True):
            assert as_planned(plan, None, None, {})[0].network == "foreign_net:build"
