"""Every code block and command in README and documentation runs, or says visibly why not."""

from __future__ import annotations

import sys

import pytest

from tests.docs.blocks import EXECUTED, ROOT, SHOWN, blocks_of, pages, parse, unfenced_commands
from tests.docs.running import PageRun, commands_of

SLOW = frozenset(
    f"docs/howto/{name}.md" for name in ("compare", "distribute", "measure", "plan", "predict", "train")
) | {"docs/tutorial.md", "docs/guide/performance.md", "docs/howto/advise.md"}
"""Pages whose blocks take more than a few seconds together."""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """An empty current directory that modules are imported from, and a cache of its own."""
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.syspath_prepend(str(place))
    before = set(sys.modules)
    yield place
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(place)):
            del sys.modules[name]


def run_page(page: str, *, soak: bool) -> None:
    run = PageRun()
    for block in blocks_of(page):
        if block.language in EXECUTED and block.not_run is None and (soak or block.soak is None):
            run.run(block)


def tried(page: str) -> pytest.param:
    return pytest.param(page, marks=[pytest.mark.slow] if page in SLOW else [])


RUNNABLE = [page for page in pages() if any(block.language in EXECUTED for block in blocks_of(page))]


@pytest.mark.parametrize("page", [tried(page) for page in RUNNABLE])
def test_the_blocks_of_a_page_run_in_order(page, directory):
    run_page(page, soak=False)


@pytest.mark.soak
@pytest.mark.parametrize("page", [page for page in RUNNABLE if any(block.soak for block in blocks_of(page))])
def test_long_blocks_run_too(page, directory):
    run_page(page, soak=True)


@pytest.mark.parametrize("page", pages())
def test_every_block_is_of_a_kind_that_tests_know(page):
    assert {block.language for block in blocks_of(page)} <= {*EXECUTED, *SHOWN}
    assert unfenced_commands((ROOT / page).read_text(encoding="utf-8")) == []
    for block in blocks_of(page):
        if block.language in SHOWN:
            assert not block.text.startswith(("$ ", "paceline ", "import ")), f"{block.place} is code: say so"


def test_at_most_a_fifth_of_the_blocks_is_not_run():
    blocks = [block for page in pages() for block in blocks_of(page) if block.language in EXECUTED]
    left_out = [block.place for block in blocks if block.not_run]
    assert len(left_out) <= len(blocks) / 5, left_out


def test_a_block_that_fails_is_found(directory):
    with pytest.raises(NameError):
        PageRun().run(parse("```python\nprint(nothing)\n```\n")[0])
    with pytest.raises(AssertionError, match="exit code 2"):
        PageRun().run(parse("```bash\npaceline train nothing\n```\n")[0])
    with pytest.raises(AssertionError):
        PageRun().run(parse("```console\n$ paceline models\npaceline: this fails\n```\n")[0])


def test_a_line_below_a_block_says_why_it_is_not_run():
    marked = parse("```bash\nmake demo\n```\n\n*(not run by the tests: installs packages)*\n")[0]
    assert marked.not_run == "installs packages"
    assert parse("```bash\nmake demo\n```\n\nText.\n")[0].not_run is None
    assert parse("```bash\nls\n```\n*(run by `make soak`: takes a minute)*\n")[0].soak == "takes a minute"


def test_a_command_may_have_several_lines():
    (block,) = parse("```console\n$ paceline train mlp \\\n    --epochs 1\nepoch 1\n$ ls\n```\n")
    first, second = commands_of(block)
    assert first.line.split() == ["paceline", "train", "mlp", "--epochs", "1"]
    assert first.output == ["epoch 1"] and second.line == "ls"


def test_commands_in_indented_blocks_are_found():
    assert unfenced_commands("Text:\n\n    paceline train mlp\n") == ["    paceline train mlp"]
