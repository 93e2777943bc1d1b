"""`advise`: flags, files and questions; what is wrong is one line."""

from __future__ import annotations

import pytest

import paceline as package

TABLE = ["--kind", "table", "--shape", "30", "--samples", "500", "--classes", "2"]


@pytest.fixture(autouse=True)
def not_calibrated(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def test_an_advice_is_shown_and_kept_where_no_place_was_named(paceline, tmp_path):
    result = paceline("advise", "classify", *TABLE)
    assert result.code == 0 and result.err == ""
    assert "train with: paceline train runs/advice-classify-1/workload.toml" in result.out
    advice = package.load(tmp_path / "runs/advice-classify-1/advice.json")
    for choice in advice.choices:
        assert f"{choice.topic} " in result.out and choice.reason in " ".join(result.out.split())
    text = (tmp_path / "runs/advice-classify-1/workload.toml").read_text()
    assert 'network = "mlp"' in text and "hidden = [32]" in text and "# family: feed-forward. " in text


def test_json_alone_is_on_standard_output(paceline):
    result = paceline("advise", "classify", *TABLE, "--out", "a", "--json", "-")
    assert result.json["kind"] == "advice" and "family" in result.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "name a task: classify, generate, generate-to-spec, compress, sequence, or a TOML file that describes it"),
        (["--kind", "table"], "name a task: classify"),
        (["clasify"], "no task 'clasify': did you mean classify?"),
        (["classify"], "name your --data, or their --kind: image, audio, table, text, trees"),
        (["classify", "--kind", "pictures"], "kind 'pictures' is unknown"),
        (["classify", "--kind", "image"], "what --shape has a sample?"),
        (["classify", *TABLE[:4]], "how many --samples are there?"),
        (["classify", *TABLE[:6]], "how many --classes are there?"),
        (["classify", *TABLE, "--shape", "3xx2"], "should be sizes with x between them"),
        (["classify", *TABLE, "--shape", "0"], "should be sizes with x between them"),
        (["classify", *TABLE, "--shape", "999999999x999999999"], "at most 1,000,000,000"),
        (["classify", *TABLE, "--kind", "image"], "does not fit image data"),
        (["classify", *TABLE, "--samples", "0"], "should be a whole number from 1"),
        (["classify", *TABLE, "--classes", "1"], "should be a whole number from 2"),
        (["classify", *TABLE, "--labels", "501"], "labels=501 should be at most the samples, 500"),
        (
            ["classify", *TABLE, "--error", "little"],
            "--error little should be a number above 0 (below 100 with %), e.g. 0.05",
        ),
        (["classify", *TABLE, "--error", "500%"], "--error 500% should be a number above 0 (below 100 with %)"),
        (["classify", *TABLE, "--error", "0"], "should be a number above 0"),
        (["classify", *TABLE, "--time", "24"], "--time 24 should be a time with a unit"),
        (["classify", *TABLE, "--device", "H2000"], "no device 'H2000': did you mean"),
        (["classify", *TABLE, "--device", ","], "names no device"),
        (["classify", *TABLE, "--devices", "0"], "should be a whole number from 1"),
        (["classify", *TABLE, "--devices", "1000"], "this machine has "),
        (["classify", *TABLE, "--device", "H200", "--link", "string"], "no link 'string'"),
        (["classify", *TABLE, "--data", "digits"], "--shape is known from --data digits: leave it out"),
        (["classify", "--data", "nothing"], "no data source 'nothing'"),
        (["classify", "--data", "digits", "--kind", "text"], "does not fit --data digits, which are image data"),
        (["classify", "--kind", "text"], "no built-in network can classify whole texts"),
        (["compress", "--kind", "trees"], "no built-in network can compress trees"),
        (["sequence", *TABLE], "a sequence needs steps"),
        (["classify", *TABLE, "--try"], "trying candidates needs an acceptable --error"),
        (["classify", *TABLE, "--error", "5%", "--try"], "trying candidates needs your --data"),
        (["nowhere.toml"], "nowhere.toml: no such file"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(paceline, tmp_path, arguments, line):
    assert line in paceline("advise", *arguments).refused()
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kind = 'table'", "it has no task"), ("task = 3", "it has no task"), ("task", "not valid TOML"),
        ("task = 'classify'\nsampels = 3", "no key 'sampels' in the description of a task: did you mean samples"),
        ("task = 'classify'\nsamples = 'many'", "samples='many' should be a whole number"),
        ("task = 'classify'\nerror = [1]", "error=[1] should be text"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_named(paceline, tmp_path, text, line):
    (tmp_path / "task.toml").write_text(text)
    said = paceline("advise", "task.toml").refused()
    assert said.startswith("task.toml: ") and line in said


def test_a_directory_that_holds_something_is_not_written_to(paceline, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").touch()
    assert "--out full is not empty" in paceline("advise", "classify", *TABLE, "--out", "full").refused()


@pytest.fixture
def terminal(monkeypatch):
    """Standard input and output are a terminal, and these are the answers."""

    def answer(*words: str) -> list[str]:
        left, asked = list(words), []
        monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
        monkeypatch.setattr("rich.console.Console.is_terminal", True)
        monkeypatch.setattr("rich.console.Console.status", lambda *_: __import__("contextlib").nullcontext())
        monkeypatch.setattr("rich.console.Console.input", lambda _, question: (asked.append(question), left.pop(0))[1])
        return asked

    return answer


def test_on_a_terminal_it_asks_and_asks_again(paceline, terminal):
    asked = terminal("sort", "classify", "", "pictures", "table", "30", "many", "500", "2", "", "5%", "", "H200", "2")
    result = paceline("advise", "--out", "asked")
    assert result.code == 0, result.err
    task = package.load("asked/advice.json").task
    assert task == package.TaskDescription(
        "classify", kind="table", shape="30", samples=500, classes=2, error="5%", device="H200", devices=2
    )
    assert sum("What should the network do?" in question for question in asked) == 2
    assert "no task 'sort'" in result.out and "should be a whole number" in result.out


def test_it_asks_for_nothing_that_data_say(paceline, terminal):
    asked = terminal("compress", "digits", "", "", "")
    assert paceline("advise", "--out", "asked").code == 0
    assert len(asked) == 5 and package.load("asked/advice.json").workload.data == "digits"
