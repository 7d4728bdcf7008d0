"""PyTorch on the CPU as a backend of Trueno.  Nothing is imported here: the manifest names the factory."""
