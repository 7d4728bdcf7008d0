"""An engine for language models in GGUF files on Trueno's public functions: `python -m examples.qwen2 --help`."""
