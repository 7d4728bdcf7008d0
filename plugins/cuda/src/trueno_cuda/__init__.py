"""The CUDA backend's package: not built yet, as `backend.toml` tells whoever asks."""
