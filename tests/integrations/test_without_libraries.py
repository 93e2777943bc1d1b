"""Without the library there is one line that says what to install, and importing the package imports none of them."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from paceline.errors import PacelineError


@pytest.mark.parametrize(
    ("module", "libraries"),
    [("lightning", ("lightning", "lightning.pytorch", "lightning.pytorch.callbacks", "pytorch_lightning")),
     ("transformers", ("transformers",))],
)  # fmt: skip
def test_one_line_says_what_to_install(module, libraries, monkeypatch):
    for library in libraries:
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"paceline.integrations.{module}", raising=False)
    with pytest.raises(PacelineError, match=rf"pip install paceline\[{module}\]"):
        importlib.import_module(f"paceline.integrations.{module}")


def test_the_package_imports_none_of_them():
    code = "import sys, paceline, paceline.integrations; print({'lightning', 'transformers'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
