"""The wheel that is published installs and runs by itself, with all data files of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def metadata() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_metadata_says_what_an_index_shows():
    project = metadata()
    assert {"description", "readme", "license", "keywords", "classifiers", "requires-python", "authors"} <= set(project)
    assert "Operating System :: POSIX :: Linux" in project["classifiers"]
    for version in ("3.11", "3.12"):
        assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_every_dependency_of_an_extra_has_a_lower_bound():
    extras = metadata()["optional-dependencies"]
    assert {"dev", "docs", "bench", "pandas"} <= set(extras)
    assert [need for needs in extras.values() for need in needs if ">=" not in need] == []


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    place = tmp_path_factory.mktemp("packaging")
    source = place / "source"
    shutil.copytree(ROOT / "paceline", source / "paceline", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(place / "dist"), str(source))
    return place / "dist"


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    (wheel,) = built.glob("*.whl")
    run(
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(target),
        str(wheel),
    )
    return target


def run(*command: str, **options) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_of(package: Path) -> set[str]:
    found = (path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file())
    return {name for name in found if "__pycache__" not in name}


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(installed):
    assert files_of(installed / "paceline") == files_of(ROOT / "paceline")


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_directory(installed, tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(installed), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    said = run(sys.executable, "-m", "paceline", "models", cwd=tmp_path, env=environment)
    assert "resnet50" in said
    calls = {
        "catalogue devices": "H200",
        "reproduce": "elgato",
        "train mlp --data digits --epochs 1 --out run": "summary.html",
        "report run --out page.html": "page.html",
        "predict lenet5 --data digits --device H200": "lenet5",
    }
    script = (  # in one process, of which importing PyTorch takes most of the time
        "import sys, paceline; from paceline.cli import main; print(paceline.__file__)\n"
        "for call in sys.argv[1:]:\n    print(f'called {call}', flush=True)\n    assert main(call.split()) == 0, call\n"
    )
    said = run(sys.executable, "-c", script, *calls, cwd=tmp_path, env=environment)
    place, *answers = said.split("called ")
    assert place.startswith(str(installed)) and len(answers) == len(calls)
    for answer, (call, says) in zip(answers, calls.items(), strict=True):
        assert says in answer.removeprefix(call), call


@pytest.mark.slow
def test_the_source_distribution_has_readme_and_licence(built):
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"README.md", "LICENSE", "pyproject.toml", "paceline/__init__.py"} <= names
