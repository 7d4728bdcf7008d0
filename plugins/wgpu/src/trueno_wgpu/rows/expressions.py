"""What each node kind is in WGSL: one line an element kind."""

EXPRESSIONS: dict[str, str] = {
    "neg": "negative({0})",
    "abs": "absolute({0})",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "quotient({0}, {1})",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "copysign": "with_sign({0}, {1})",
    "fma": "fma({0}, {1}, {2})",
    "floor": "rounded_down({0})",
    "ceil": "rounded_up({0})",
    "trunc": "rounded_off({0})",
    "rint": "rounded_even({0})",
    "lt": "less({0}, {1})",
    "le": "less_equal({0}, {1})",
    "gt": "less({1}, {0})",
    "ge": "less_equal({1}, {0})",
    "eq": "equal({0}, {1})",
    "ne": "!equal({0}, {1})",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "not": "!{0}",
    "isnan": "is_nan({0})",
    "isinf": "is_inf({0})",
    "where": "select({2}, {1}, {0})",
    "sqrt": "root({0})",
    "rsqrt": "inverse_root({0})",
    "exp": "safe_exp({0})",
    "exp2": "safe_exp2({0})",
    "expm1": "safe_expm1({0})",
    "log": "safe_log({0})",
    "log2": "safe_log2({0})",
    "log10": "safe_log10({0})",
    "log1p": "safe_log1p({0})",
    "log1p_unit": "log1p_unit({0})",
    "tanh": "safe_tanh({0})",
    "erf": "safe_erf({0})",
    "sin": "safe_sin({0})",
    "cos": "safe_cos({0})",
    "atan": "safe_atan({0})",
    "pow": "safe_pow({0}, {1})",
    "cast": "f32({0})",
}
ARITHMETIC = frozenset({"add", "sub", "mul", "fma"})
SUMS = ARITHMETIC - {"mul"}
"""Kinds whose combinations compilers rewrite: c·(x·y) to (c·x)·y, (a + b) − a to b, a·b + a·c to a·(b + c).

Each rounds otherwise than the program says, and with Inf comes out as another value altogether.
"""
