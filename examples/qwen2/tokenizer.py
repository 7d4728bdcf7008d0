"""Text to tokens and back, as a GGUF file describes it, through the package `tokenizers`; chats through jinja2."""

from typing import Any

import jinja2.sandbox
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from examples.qwen2.checkpoint import EngineError

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {"qwen2": WORDS % "", "deepseek-r1-qwen": WORDS % "", "llama-bpe": WORDS % "{1,3}"}
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>")
CHAT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"


class Text:
    """A tokenizer that merges bytes: Qwen, Llama 3, GPT-2.  ends: the tokens that end a text or an answer."""

    def __init__(self, metadata: Any) -> None:
        self.metadata = metadata
        self.names, kind, split = self._key("tokens", []), self._key("model"), self._key("pre", "default")
        if not self.names or kind != "gpt2" or split not in (*SPLITS, "gpt-2", "default"):
            raise EngineError(f"the engine does not know the model's tokenizer, {kind!r} {split!r}; use --tokens --ids")
        ids = {name: i for i, name in enumerate(self.names)}
        merges = [tuple(pair.split(" ", 1)) for pair in self._key("merges", [])]
        self.tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=split == "llama-bpe"))
        steps = [pre_tokenizers.Split(Regex(SPLITS[split]), "isolated")] if split in SPLITS else []
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split not in SPLITS))
        self.tokenizer.pre_tokenizer, self.tokenizer.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
        typed = zip(self.names, self._key("token_type", []), strict=False)
        added = [AddedToken(n, special=t == 3) for n, t in typed if t in (3, 4)]  # GGUF's control, user-defined
        self.tokenizer.add_tokens(added)
        self.ends = {self._key(f"{key}_token_id") for key in ("eos", "eot", "eom")} | {ids.get(name) for name in ENDS}
        self.first = self._key("bos_token_id") if self._key("add_bos_token", False) else None

    def _key(self, name: str, default: Any = None) -> Any:
        return self.metadata.get(f"tokenizer.ggml.{name}", default)

    def encode(self, text: str, first: bool = True) -> list[int]:
        """The tokens of a text; `first`: after the one that begins every text, if the model has one."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        return [self.first, *ids] if first and self.first is not None else ids

    def stream(self) -> Any:
        """A function that returns the text that a token adds: "" while a character is incomplete."""
        decoder = decoders.DecodeStream(skip_special_tokens=True)
        return lambda token: decoder.step(self.tokenizer, token) or ""

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        """A conversation by the model's template, up to where the assistant answers."""
        template = self.metadata.get("tokenizer.chat_template", CHAT if "<|im_start|>" in self.names else None)
        if template is None:
            raise EngineError("the model has no template for chats; use generate")
        names = {f"{k}_token": self.names[i] for k in ("bos", "eos") if (i := self._key(f"{k}_token_id")) is not None}
        box = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        try:
            text = box.from_string(template).render(messages=messages, add_generation_prompt=True, **names)
        except Exception as error:  # a template is a program
            raise EngineError(f"the model's template for chats fails: {error}") from error
        return self.encode(text, first=not text.startswith(names.get("bos_token", text)))
