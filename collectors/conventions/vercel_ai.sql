/* +++
name       = "vercel_ai"
extends    = "gen_ai"
rank       = 60
detects    = "ai.operationId (Vercel AI SDK 3.4 to 6, and 7's LegacyOpenTelemetry), or scope gen_ai (7's OpenTelemetry)"
where      = '''
    attribute_keys LIKE '%"ai.operationId"%' OR scope_name = 'gen_ai'
'''
version    = "ai 3.4 to 7.0, @ai-sdk/otel 1.0"
references = ["vercel/ai, packages/ai at ai@3.4.33, ai@4.3.19, ai@5.0.0; packages ai 6.0.326 and 7.0.173, @ai-sdk/otel 1.0.173"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, from_json(attributes, '{
        "ai.operationId": "VARCHAR", "ai.telemetry.functionId": "VARCHAR",
        "ai.telemetry.metadata.sessionId": "VARCHAR", "ai.telemetry.metadata.session_id": "VARCHAR",
        "ai.telemetry.metadata.conversationId": "VARCHAR", "ai.telemetry.metadata.threadId": "VARCHAR", "ai.telemetry.metadata.thread_id": "VARCHAR",
        "ai.telemetry.metadata.chatId": "VARCHAR", "ai.telemetry.metadata.userId": "VARCHAR", "ai.telemetry.metadata.user_id": "VARCHAR",
        "ai.settings.context.sessionId": "VARCHAR", "ai.settings.context.session_id": "VARCHAR",
        "ai.settings.context.conversationId": "VARCHAR", "ai.settings.context.threadId": "VARCHAR", "ai.settings.context.thread_id": "VARCHAR",
        "ai.settings.context.chatId": "VARCHAR", "ai.settings.context.userId": "VARCHAR", "ai.settings.context.user_id": "VARCHAR",
        "ai.model.id": "VARCHAR", "ai.model.provider": "VARCHAR",
        "ai.prompt.messages": "JSON", "ai.prompt.tools": "JSON",
        "ai.response.text": "VARCHAR", "ai.result.text": "VARCHAR", "ai.response.object": "VARCHAR",
        "ai.response.toolCalls": "JSON", "ai.result.toolCalls": "JSON",
        "ai.response.reasoning": "VARCHAR", "ai.response.finishReason": "VARCHAR", "ai.response.msToFirstChunk": "JSON",
        "ai.response.id": "VARCHAR", "ai.response.model": "VARCHAR", "ai.response.providerMetadata": "JSON",
        "ai.toolCall.name": "VARCHAR", "ai.toolCall.id": "VARCHAR", "ai.toolCall.args": "VARCHAR", "ai.toolCall.result": "VARCHAR",
        "ai.usage.inputTokens": "JSON", "ai.usage.promptTokens": "JSON", "ai.usage.outputTokens": "JSON", "ai.usage.completionTokens": "JSON",
        "ai.usage.tokens": "JSON", "ai.usage.cachedInputTokens": "JSON", "ai.usage.inputTokenDetails.cacheReadTokens": "JSON",
        "ai.usage.inputTokenDetails.cacheWriteTokens": "JSON",
        "ai.usage.reasoningTokens": "JSON", "ai.usage.outputTokenDetails.reasoningTokens": "JSON"
    }') AS a
    FROM candidates
),
kinds AS (
    SELECT *, CASE
        -- Version 7 follows the general conventions but for the ids of its runtime context.
        WHEN a."ai.operationId" IS NULL THEN NULL
        WHEN regexp_matches(a."ai.operationId", '\.(doGenerate|doStream)$') THEN 'model'
        WHEN a."ai.operationId" = 'ai.toolCall' THEN 'tool'
        WHEN regexp_matches(a."ai.operationId", '^ai\.(generate|stream)(Text|Object)$') THEN 'agent'
        -- ai.embed itself repeats the tokens of its calls.
        WHEN regexp_matches(a."ai.operationId", '\.doEmbed$') THEN 'retrieval'
        ELSE 'other' END AS kind,
        coalesce(a."ai.response.text", a."ai.result.text", a."ai.response.object") AS text,
        coalesce(a."ai.response.toolCalls", a."ai.result.toolCalls") AS calls,
        decoded(a."ai.response.providerMetadata") -> '$.anthropic' AS anthropic,
        coalesce(count_of(anthropic -> '$.cacheReadInputTokens'), count_of(anthropic -> '$.usage.cache_read_input_tokens'),
            count_of(a."ai.usage.cachedInputTokens")) AS cache_read,
        coalesce(count_of(anthropic -> '$.cacheCreationInputTokens'), count_of(anthropic -> '$.usage.cache_creation_input_tokens')) AS cache_write,
        coalesce(count_of(a."ai.usage.inputTokens"), count_of(a."ai.usage.promptTokens"),
            CASE WHEN kind = 'retrieval' THEN count_of(a."ai.usage.tokens") END) AS input
    FROM found
)
SELECT
    trace_id, span_id, 'vercel_ai' AS convention, kind,
    CASE WHEN kind = 'agent' THEN coalesce(a."ai.telemetry.functionId", a."ai.operationId") END AS agent_name,
    -- The application's own keys; these are the names in use.
    coalesce(
        a."ai.telemetry.metadata.sessionId", a."ai.telemetry.metadata.session_id", a."ai.telemetry.metadata.conversationId",
        a."ai.telemetry.metadata.threadId", a."ai.telemetry.metadata.thread_id", a."ai.telemetry.metadata.chatId",
        a."ai.settings.context.sessionId", a."ai.settings.context.session_id", a."ai.settings.context.conversationId",
        a."ai.settings.context.threadId", a."ai.settings.context.thread_id", a."ai.settings.context.chatId") AS session_id,
    coalesce(
        a."ai.telemetry.metadata.userId", a."ai.telemetry.metadata.user_id",
        a."ai.settings.context.userId", a."ai.settings.context.user_id") AS user_id,
    a."ai.toolCall.name" AS tool_name,
    a."ai.toolCall.id" AS tool_call_id,
    json_of_text(a."ai.toolCall.args") AS arguments,
    json_of_text(a."ai.toolCall.result") AS observation,
    a."ai.model.provider" AS provider,
    coalesce(a."ai.response.model", a."ai.model.id") AS model,
    CASE WHEN kind = 'model' THEN a."ai.response.id" END AS response_id,
    CASE WHEN kind = 'model' THEN messages(a."ai.prompt.messages") END AS input_messages,
    CASE WHEN kind = 'model' AND (text IS NOT NULL OR calls IS NOT NULL) THEN messages(to_json([json_object(
        'role', 'assistant', 'content', text, 'tool_calls', calls)])) END AS output_messages,
    CASE WHEN kind = 'model' THEN a."ai.response.reasoning" END AS thought,
    CASE WHEN kind = 'model' THEN tool_definitions(a."ai.prompt.tools") END AS offered_tools,
    CASE WHEN kind = 'model' THEN a."ai.response.finishReason" END AS finish_reason,
    -- generateText repeats only the last step's usage on its root in 4 and 5.0, so the root's counts only where no step has any.
    -- Until version 5 the input follows the provider, and Anthropic's leaves the cache out; from 5 on, the provider's own count stands beside it.
    CASE
        WHEN a."ai.usage.inputTokenDetails.cacheReadTokens" IS NOT NULL OR kind <> 'model' THEN input
        WHEN count_of(anthropic -> '$.usage.input_tokens') IS NOT NULL
            THEN count_of(anthropic -> '$.usage.input_tokens') + coalesce(cache_read, 0) + coalesce(cache_write, 0)
        WHEN a."ai.model.provider" LIKE '%anthropic%' THEN input + coalesce(cache_read, 0) + coalesce(cache_write, 0)
        ELSE input END AS input_tokens,
    coalesce(count_of(a."ai.usage.outputTokens"), count_of(a."ai.usage.completionTokens")) AS output_tokens,
    coalesce(count_of(a."ai.usage.inputTokenDetails.cacheReadTokens"), cache_read) AS cached_input_tokens,
    coalesce(count_of(a."ai.usage.inputTokenDetails.cacheWriteTokens"), cache_write) AS cache_write_tokens,
    coalesce(count_of(a."ai.usage.outputTokenDetails.reasoningTokens"), count_of(a."ai.usage.reasoningTokens")) AS reasoning_tokens,
    number_of(a."ai.response.msToFirstChunk") AS time_to_first_token_ms,
    CASE WHEN kind = 'agent' THEN text END AS final_response
FROM kinds
