"""Measuring the backends on this machine, and keeping what came out for the selector (`trueno.select.calibration`)."""
