"""The rules, a module each: what one finds, why that matters, what to do, a kernel that has it and one without."""

from importlib import import_module
from pkgutil import iter_modules

from trueno_cuda.ptx.analyze.finding import SEVERITIES, Rule

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{
.reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .f32 %f<16>; .reg .f64 %w<200>;
.shared .align 16 .b8 s[1024];
"""
"""What stands before the body of an example."""


def _rules() -> dict[str, Rule]:
    modules = [import_module(f"{__name__}.{m.name}") for m in iter_modules(__path__)]
    rules = [m.RULE for m in modules if hasattr(m, "RULE")]
    order = sorted(rules, key=lambda rule: (-SEVERITIES.index(rule.severity), rule.id))
    return {rule.id: rule for rule in order}


RULES = _rules()
"""By id, the gravest first."""
USUAL = tuple(name for name, rule in RULES.items() if not rule.strict)
"""The rules that run where none is named."""


def example(body: str) -> str:
    """A whole module around a rule's example, unless it is one."""
    return body if body.startswith(".version") else f"{HEAD}{body}\n}}\n"
