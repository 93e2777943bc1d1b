"""Which modules of a network are timed separately, and which of them a parameter belongs to."""

from __future__ import annotations

from torch import nn


def rows_of(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that are timed separately, by name. A compiled module is one row: a hook inside it would break the
    graph."""
    rows: dict[str, nn.Module] = {}
    whole: list[str] = []
    for name, module in model.named_modules():
        if any(name.startswith(prefix) for prefix in whole):
            continue
        if is_compiled(module):
            whole.append(f"{name}." if name else "")
        rows[name or type(model).__name__] = module
    return rows


def is_compiled(module: nn.Module) -> bool:
    """Whether the module is the result of `torch.compile`, or was compiled in place by its method `compile`."""
    return "_orig_mod" in module._modules or module._compiled_call_impl is not None


def row_above(parameter: str, rows: dict[str, nn.Module], whole: str) -> str:
    above = parameter.rpartition(".")[0]
    while above and above not in rows:
        above = above.rpartition(".")[0]
    return above or whole
