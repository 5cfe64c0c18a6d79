"""Fields of OpenAI's and vLLM's requests that nothing here does, and the values that ask for nothing: clients send them
because some server once did something for them. Any other value is refused by the field's name."""

from __future__ import annotations

from typing import Any

Values = tuple[Any, ...]

COMMON: dict[str, Values] = {
    "store": (None, False),
    "service_tier": (None, "auto", "default"),
    "moderation": (None,),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1),
    "early_stopping": (None, False),
    "spaces_between_special_tokens": (None, True, False),
    "routed_experts_prompt_start": (None, 0),
    "return_token_offsets": (None, False),
    "return_mm_kwargs": (None, True, False),
    "prompt_embeds": (None,),
    "repetition_detection": (None,),
    "stream_interval": (None, 1),
    "watermarking": (None, False),
    "kv_transfer_params": (None,),
    "ec_transfer_params": (None,),
    "vllm_xargs": (None, {}),
    "mm_processor_kwargs": (None, {}),
    "media_io_kwargs": (None, {}),
}
"""In completions and chat completions. Spaces between special tokens matter to slow tokenizers only, and mm_kwargs to
what renders without answering."""

COMPLETION: dict[str, Values] = {"suffix": (None, "")}
"""In completions."""

LABELS = ("session_id", "prompt_cache_retention", "prompt_cache_options")
"""Fields that any value may have: they are for whoever counts or caches in another way."""
