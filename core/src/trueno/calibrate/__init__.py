"""Measures the backends on this machine, and stores the speeds for the selector (`trueno.select.calibration`)."""
