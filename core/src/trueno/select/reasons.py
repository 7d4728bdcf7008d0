"""Reason codes: the fixed vocabulary in which the selector explains its choices.

A candidate of a `Decision` has one code; so has an entry of the registry that cannot run.
Plugins answer `supports` with a word of `PLUGIN`; any other word becomes the detail of `unsupported_call`.
"""

REASONS: dict[str, str] = {
    # why it was chosen
    "named": "requested by name: `trueno.use`, `trueno.set_default` or TRUENO_BACKEND",
    "preferred": "preferred with `trueno.prefer`, and it can run the call",
    "policy": "a site's `trueno_select` hook named it",
    "resident": "the operands are on its device; compute follows data",
    "only": "no other backend can take the call",
    "fastest": "its predicted time is the least",
    "tier": "within 10 % of the fastest, and of a higher tier",
    # why it was not
    "not_asked": "other backends were requested by name",
    "less_preferred": "another was preferred with `trueno.prefer`",
    "overruled": "a site's `trueno_select` hook named another",
    "not_resident": "the operands are on another device",
    "too_small": "a GPU is not considered for host arrays of this size",
    "slower_measured": "its predicted time is longer, from speeds measured here",
    "slower_declared": "its predicted time is longer, from declared speeds",
    "lower_tier": "no faster than the chosen one by more than 10 %, and of a lower tier",
    "opt_in": "used only when it is named",
    "software": "software that emulates a GPU is used only when it is named",
    "quarantined": "it failed, or tripped a guard, for calls like this one",
    # why it cannot take this call
    "unsupported_op": "it has no kernel for the op",
    "unsupported_dtype": "it has no kernel for the dtype",
    "unsupported_layout": "it has no kernel for operands laid out like these",
    "unsupported_shape": "it has no kernel for operands of these sizes",
    "unsupported_call": "it does not take the call, for another reason",
    "unguarded": "it has no guarded kernel; the core checks the results instead",
    "bad_rates": "the speeds that it declares are not valid",
    # why it cannot run here at all
    "blocked": "switched off with TRUENO_BLOCK",
    "forced_cpu": "switched off with TRUENO_FORCE_CPU or FORCE_CPU",
    "not_built": "its own manifest says that it cannot run yet",
    "bad_manifest": "its manifest is not valid",
    "duplicate": "two distributions have a backend of this name",
    "api_mismatch": "it implements another version of the backend protocol",
    "missing": "a module that it requires is not installed",
    "no_device": "the hardware that it runs on is absent",
    "probe_failed": "its probe says no",
    "probe_crashed": "the process that probed it was ended by a signal or an error",
    "probe_timeout": "the process that probed it did not end in time",
    "load_failed": "it passed its probe in a child process but failed in this one",
    "lost": "it failed for good while this process ran",
}

PLUGIN = (
    "unsupported_op",
    "unsupported_dtype",
    "unsupported_layout",
    "unsupported_shape",
    "unsupported_call",
    "unguarded",
)
