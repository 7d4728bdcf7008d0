"""Three ways to run what a decode step recorded: launch after launch, launches that begin early, one persistent kernel.

The plugin `trueno_cuda` ships the second one.  The third is built here (`fold`), is slower, and is kept so that the
comparison can be repeated; `collect` issues a recording's launches in each of the ways.
"""
