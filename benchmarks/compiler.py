"""Compiling is measured as a first run has it: what earlier runs left behind is put aside."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.compiler

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


@contextmanager
def empty_compiler_cache() -> Iterator[None]:
    """Once a process: the compiler remembers paths inside its folder, which must not vanish meanwhile."""
    torch.compiler.config.force_disable_caches = True
    before = os.environ.get(_VARIABLE)
    with tempfile.TemporaryDirectory(prefix="compiled-", ignore_cleanup_errors=True) as folder:
        os.environ[_VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(_VARIABLE)
            if before is not None:
                os.environ[_VARIABLE] = before


def forget_compiled() -> None:
    """Drops what this process has compiled; steps that are still in use would be compiled again."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
