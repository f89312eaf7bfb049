"""Attribute keys that our own spans carry, and the exception types that mean a cancellation.

Keys without the prefix `agenttrace.` are OpenTelemetry GenAI semantic conventions (the genai repository, checked
2026-11); what those lack is `agenttrace.*`.
"""

from typing import Final

SCOPE_NAME: Final = "agenttrace"
TRANSCRIPT_SCOPE_NAME: Final = "agenttrace.transcript"

OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"

AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
USER_ID: Final = "user.id"
ERROR_TYPE: Final = "error.type"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

PROVIDER: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHED_INPUT_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
COST: Final = "gen_ai.usage.cost"

TENANT_ID: Final = "agenttrace.tenant.id"
TASK_ID: Final = "agenttrace.task.id"
TRIAL: Final = "agenttrace.trial"
USER_INPUT: Final = "agenttrace.user_input"
FINAL_RESPONSE: Final = "agenttrace.final_response"
LAST_MESSAGES: Final = "agenttrace.transcript.last_messages"
THOUGHT: Final = "agenttrace.thought"
INITIAL_STATE: Final = "agenttrace.state.initial"
FINAL_STATE: Final = "agenttrace.state.final"
MUTATES: Final = "agenttrace.tool.mutates"
IDEMPOTENCY_KEY: Final = "agenttrace.tool.idempotency_key"
ARGUMENTS_HASH: Final = "agenttrace.tool.arguments_hash"
ARGUMENTS_BYTES: Final = "agenttrace.arguments.original_bytes"
RESULT_BYTES: Final = "agenttrace.result.original_bytes"
CANCELLED: Final = "agenttrace.cancelled"
ERROR_BASES: Final = "agenttrace.error.bases"

CANCELLATION_EXCEPTIONS: Final = frozenset(
    {
        "asyncio.exceptions.CancelledError",
        "concurrent.futures._base.CancelledError",
        "trio.Cancelled",
        "GeneratorExit",
    }
)
"""Exception types that mean a call was cancelled, by qualified name, so that no framework is imported."""
