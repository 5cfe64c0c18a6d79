"""Every field that the SDKs of OpenAI and Anthropic can send is known here: served, or refused by its name where it
asks for what is not done. What a new SDK brings shows here first."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types.beta.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.beta.message_create_params import MessageCreateParamsBase
from openai.types.chat.chat_completion_assistant_message_param import ChatCompletionAssistantMessageParam
from openai.types.chat.completion_create_params import CompletionCreateParamsBase as ChatParams
from openai.types.completion_create_params import CompletionCreateParamsBase as CompletionParams
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.shared_params.function_definition import FunctionDefinition

from frontend_svc.api.anthropic.body import CountBody, MessagesBody
from frontend_svc.api.openai.chat_body import ChatBody
from frontend_svc.api.openai.completion_body import CompletionBody
from frontend_svc.api.openai.embeddings import EmbeddingsBody
from frontend_svc.api.openai.messages import Message
from frontend_svc.api.openai.schema import Body
from frontend_svc.api.openai.tools import Function
from frontend_svc.api.responses.body import ResponsesBody

UNKNOWN: dict[type[Body], set[str]] = {ResponsesBody: {"access_programs", "background_options", "image"}}
"""Refused as fields that are not known, which says as much."""
VLLM_COMMON = """
    model frequency_penalty logit_bias logprobs n presence_penalty seed stop stream stream_options temperature
    top_p user max_tokens response_format structured_outputs use_beam_search top_k min_p repetition_penalty
    watermarking length_penalty stop_token_ids include_stop_str_in_output ignore_eos min_tokens
    skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens truncation_side prompt_logprobs
    logprob_token_ids allowed_token_ids bad_words add_special_tokens echo priority request_id session_id
    return_tokens_as_token_ids return_token_ids routed_experts_prompt_start return_token_offsets
    return_mm_kwargs cache_salt kv_transfer_params ec_transfer_params vllm_xargs repetition_detection
    stream_interval
"""
VLLM_CHAT = """
    messages top_logprobs max_completion_tokens tools tool_choice reasoning_effort thinking_token_budget
    include_reasoning parallel_tool_calls add_generation_prompt continue_final_message documents chat_template
    chat_template_kwargs media_io_kwargs mm_processor_kwargs return_prompt_text
"""
VLLM_RESPONSES = """
    background include input instructions max_output_tokens max_tool_calls metadata model logit_bias
    parallel_tool_calls previous_response_id prompt reasoning service_tier store stream temperature text
    tool_choice tools top_logprobs top_p top_k truncation user skip_special_tokens include_stop_str_in_output
    prompt_cache_key request_id mm_processor_kwargs priority cache_salt enable_response_messages
    previous_input_messages previous_response structured_outputs repetition_penalty seed stop ignore_eos
    vllm_xargs
"""
"""Fields of vLLM's protocol files of summer 2026."""


@pytest.mark.parametrize(
    ("params", "body"),
    [
        (ChatParams, ChatBody),
        (CompletionParams, CompletionBody),
        (ResponseCreateParamsBase, ResponsesBody),
        (EmbeddingCreateParams, EmbeddingsBody),
        (MessageCreateParamsBase, MessagesBody),
        (MessageCountTokensParams, CountBody),
        (ChatCompletionAssistantMessageParam, Message),
        (FunctionDefinition, Function),
    ],
)
def test_fields_of_sdks_are_known(params: Any, body: type[Body]) -> None:
    assert params.__annotations__.keys() - body.model_fields.keys() == UNKNOWN.get(body, set())


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        (VLLM_COMMON + VLLM_CHAT, ChatBody),
        (VLLM_COMMON + "prompt suffix best_of prompt_embeds", CompletionBody),
        (VLLM_RESPONSES, ResponsesBody),
    ],
)
def test_fields_of_vllm_are_known(fields: str, body: type[Body]) -> None:
    assert set(fields.split()) - body.model_fields.keys() == set()
