"""The gates of `trueno qa`: each runs what it is about on this machine, and reports what it measured.

`measurement` is what a gate is handed: it notes facts, demands conditions, or gives a reason why it can not run here.
`registry` lists the gates in order, the plugins' too (entry points of the group `trueno.gates`), and runs them.
The other files have the core's own gates, a function each; `page` writes their reference page.
"""
