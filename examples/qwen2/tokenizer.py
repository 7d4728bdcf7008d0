"""Text to tokens and back, as a GGUF file describes it, through the package `tokenizers`; chats through jinja2."""

from typing import Any

import jinja2.sandbox
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from examples.qwen2.checkpoint import EngineError

WORDS = r"(?i:'(?:[stmd]|re|ve|ll))|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS = {"qwen2": WORDS % "", "deepseek-r1-qwen": WORDS % "", "llama-bpe": WORDS % "{1,3}"}
ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "</s>")
CHAT = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"


class Text:
    """A tokenizer that merges bytes (Qwen, Llama 3) or pieces (Llama 2).  ends: tokens that end a text or an answer."""

    def __init__(self, metadata: Any) -> None:
        self.keys = {key.rpartition(".")[2]: metadata[key] for key in metadata if key.startswith("tokenizer.")}
        get, self.names = self.keys.get, self.keys.get("tokens", [])
        kind, split = get("model"), get("pre", "default")
        if not self.names or kind not in ("gpt2", "llama") or split not in (*SPLITS, "gpt-2", "default"):
            raise EngineError(f"the engine does not know the model's tokenizer, {kind!r} {split!r}; use --tokens --ids")
        ids = {name: i for i, name in enumerate(self.names)}
        if pieces := kind == "llama":  # as in SentencePiece, neighbours merge whose joint piece has the best score
            scores, cuts = get("scores", []), [(name[:i], name[i:]) for name in ids for i in range(1, len(name))]
            ranks = {c: scores[ids["".join(c)]] for c in cuts if c[0] in ids and c[1] in ids}
            if len(set(map("".join, ranks))) > len(set(ranks.values())):  # llama.cpp merges the leftmost of equals
                raise EngineError("pieces of the model's tokenizer have equal scores; use --tokens --ids")
            merges, unknown = sorted(ranks, key=ranks.get, reverse=True), self.names[get("unknown_token_id", 0)]
            self.tokenizer = Tokenizer(models.BPE(ids, merges, byte_fallback=True, unk_token=unknown))
            spaces = [normalizers.Prepend("▁")] * get("add_space_prefix", True) + [normalizers.Replace(" ", "▁")]
            steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
            self.tokenizer.normalizer, self.tokenizer.decoder = normalizers.Sequence(spaces), decoders.Sequence(steps)
        else:
            merges = [tuple(pair.split(" ", 1)) for pair in get("merges", [])]
            self.tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=split == "llama-bpe"))
            steps = [pre_tokenizers.Split(Regex(SPLITS[split]), "isolated")] if split in SPLITS else []
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split not in SPLITS))
            self.tokenizer.pre_tokenizer, self.tokenizer.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
        typed = zip(self.names, get("token_type", []), strict=False)  # 2 unknown, 3 control, 4 user-defined
        self.tokenizer.add_tokens([AddedToken(n, special=t != 4, normalized=False) for n, t in typed if t in (2, 3, 4)])
        self.ends = {get(f"{key}_token_id") for key in ("eos", "eot", "eom")} | {ids.get(name) for name in ENDS}
        self.first = [get("bos_token_id", 1 if pieces else 11)] if get("add_bos_token", pieces) else []

    def encode(self, text: str, first: bool = True) -> list[int]:
        """The tokens of a text; `first`: after the one that begins every text, if the model has one."""
        return self.first * first + self.tokenizer.encode(text, add_special_tokens=False).ids

    def stream(self) -> Any:
        """A function that returns the text that a token adds: "" while a character is incomplete."""
        decoder = decoders.DecodeStream(skip_special_tokens=True)
        return lambda token: decoder.step(self.tokenizer, token) or ""

    def chat(self, messages: list[dict[str, str]]) -> list[int]:
        """A conversation by the model's template, up to where the assistant answers."""
        template = self.keys.get("chat_template", CHAT if "<|im_start|>" in self.names else None)
        if template is None:
            raise EngineError("the model has no template for chats; use generate")
        ids = {f"{k}_token": self.keys.get(f"{k}_token_id") for k in ("bos", "eos")}
        names = {name: self.names[i] for name, i in ids.items() if i is not None}
        box = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        try:
            text = box.from_string(template).render(messages=messages, add_generation_prompt=True, **names)
        except Exception as error:  # a template is a program
            raise EngineError(f"the model's template for chats fails: {error}") from error
        return self.encode(text, first=not text.startswith(names.get("bos_token", text)))
