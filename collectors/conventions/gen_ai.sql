/* +++
name       = "gen_ai"
rank       = 220
detects    = "gen_ai.operation.name or another gen_ai.* key that no framework's own convention has claimed, and agenttrace's own spans"
where      = '''
    operation_name IS NOT NULL OR tool_name IS NOT NULL OR scope_name = 'agenttrace'
    -- v1.26 has no operation name; a model with usage is a model call.
    OR (model IS NOT NULL AND attribute_keys LIKE '%"gen_ai.%')
    OR attribute_keys LIKE '%"mcp.method.name"%'
'''
version    = "OpenTelemetry semantic conventions 1.26 to 1.42, semantic-conventions-genai"
references = [
    "open-telemetry/semantic-conventions, model/gen-ai, v1.26.0 to v1.41.0",
    "open-telemetry/semantic-conventions-genai, model/gen-ai and model/mcp",
]
+++ */
WITH found AS (
    SELECT
        trace_id, span_id, name, operation_name, tool_name, model, status_code, status_message, error_type, scope_name,
        from_json(attributes, '{
            "gen_ai.agent.name": "VARCHAR", "gen_ai.conversation.id": "VARCHAR", "session.id": "VARCHAR",
            "gen_ai.workflow.name": "VARCHAR", "user.id": "VARCHAR", "enduser.id": "VARCHAR",
            "gen_ai.tool.name": "VARCHAR", "gen_ai.tool.call.id": "VARCHAR",
            "gen_ai.tool.call.arguments": "JSON", "gen_ai.tool.call.result": "JSON", "gen_ai.tool.definitions": "JSON",
            "gen_ai.provider.name": "VARCHAR", "gen_ai.system": "VARCHAR",
            "gen_ai.request.model": "VARCHAR", "gen_ai.response.model": "VARCHAR", "gen_ai.response.id": "VARCHAR",
            "gen_ai.response.finish_reasons": "JSON",
            "gen_ai.input.messages": "JSON", "gen_ai.output.messages": "JSON", "gen_ai.system_instructions": "JSON",
            "gen_ai.prompt": "JSON", "gen_ai.completion": "JSON",
            "gen_ai.usage.input_tokens": "JSON", "gen_ai.usage.prompt_tokens": "JSON",
            "gen_ai.usage.output_tokens": "JSON", "gen_ai.usage.completion_tokens": "JSON",
            "gen_ai.usage.cache_read.input_tokens": "JSON", "gen_ai.usage.cache_read_input_tokens": "JSON",
            "gen_ai.usage.cache_write.input_tokens": "JSON", "gen_ai.usage.cache_creation.input_tokens": "JSON",
            "gen_ai.usage.cache_creation_input_tokens": "JSON", "gen_ai.usage.cache_write_input_tokens": "JSON",
            "gen_ai.usage.reasoning.output_tokens": "JSON", "gen_ai.usage.reasoning_tokens": "JSON",
            "gen_ai.usage.cost": "JSON", "operation.cost": "JSON",
            "gen_ai.response.time_to_first_chunk": "JSON", "gen_ai.client.operation.time_to_first_chunk": "JSON",
            "mcp.method.name": "VARCHAR",
            "agenttrace.tenant.id": "VARCHAR", "agenttrace.tool.mutates": "JSON",
            "agenttrace.tool.idempotency_key": "VARCHAR", "agenttrace.tool.arguments_hash": "VARCHAR",
            "agenttrace.arguments.original_bytes": "JSON", "agenttrace.cancelled": "JSON", "agenttrace.error.bases": "JSON", "agenttrace.user_input": "VARCHAR", "agenttrace.final_response": "VARCHAR",
            "agenttrace.state.initial": "JSON", "agenttrace.state.final": "JSON"
        }') AS a
    FROM candidates
),
kinds AS (
    SELECT *, CASE
        -- The MCP SDK marks tools/list and others as execute_tool too.
        WHEN a."mcp.method.name" = 'tools/call' THEN 'tool'
        WHEN a."mcp.method.name" IS NOT NULL THEN 'other'
        WHEN operation_name IN ('chat', 'text_completion', 'text_completions', 'generate_content', 'completion', 'llm_call', 'chat.completions', 'text.completions') THEN 'model'
        WHEN operation_name IN ('execute_tool', 'tool_call') THEN 'tool'
        WHEN operation_name IN ('invoke_agent', 'agent_call') THEN 'agent'
        WHEN operation_name = 'invoke_workflow' THEN 'workflow'
        WHEN operation_name IN ('embeddings', 'retrieval') THEN 'retrieval'
        WHEN operation_name IS NOT NULL THEN 'other'
        WHEN tool_name IS NOT NULL AND model IS NULL THEN 'tool'
        WHEN a."gen_ai.request.model" IS NOT NULL THEN 'model'
        ELSE 'other' END AS kind
    FROM found
),
-- v1.37 and later: one event (span event or log record) carries the messages as D1.
details AS (
    SELECT trace_id, span_id,
        arg_min(coalesce(attributes -> '$."gen_ai.input.messages"', body -> '$."gen_ai.input.messages"'), (source, ord)) AS input,
        arg_min(coalesce(attributes -> '$."gen_ai.output.messages"', body -> '$."gen_ai.output.messages"'), (source, ord)) AS output,
        arg_min(coalesce(attributes -> '$."gen_ai.system_instructions"', body -> '$."gen_ai.system_instructions"'), (source, ord)) AS system,
        arg_min(coalesce(attributes -> '$."gen_ai.tool.definitions"', body -> '$."gen_ai.tool.definitions"'), (source, ord)) AS tools
    FROM span_events SEMI JOIN found USING (trace_id, span_id)
    WHERE event_name = 'gen_ai.client.inference.operation.details'
    GROUP BY trace_id, span_id
),
-- v1.28 to v1.36: one event per message; the body is the log record's, or the span event's attributes.
message_events AS (
    SELECT trace_id, span_id, source, ord, event_name,
        CASE WHEN body IS NULL OR json_type(body) = 'NULL'
            THEN coalesce(decoded(attributes -> '$."gen_ai.event.content"'), attributes) ELSE decoded(body) END AS b,
        -- On a span event an object is JSON text.
        decoded(b -> '$.message') AS m
    FROM span_events SEMI JOIN found USING (trace_id, span_id)
    WHERE event_name IN ('gen_ai.system.message', 'gen_ai.user.message', 'gen_ai.assistant.message', 'gen_ai.tool.message', 'gen_ai.choice')
),
per_message AS (
    SELECT trace_id, span_id, source,
        messages(to_json(list(json_object(
            'role', coalesce(b ->> '$.role', split_part(event_name, '.', 2)), 'name', b -> '$.name', 'content', b -> '$.content',
            'tool_calls', b -> '$.tool_calls', 'tool_call_id', coalesce(b ->> '$.id', b ->> '$.tool_call_id')) ORDER BY ord)
            FILTER (WHERE event_name <> 'gen_ai.choice'))) AS input,
        messages(to_json(list(json_object(
            'role', 'assistant', 'content', coalesce(m -> '$.content', CASE WHEN json_type(m) = 'VARCHAR' THEN m END, b -> '$.content'),
            'tool_calls', coalesce(m -> '$.tool_calls', b -> '$.tool_calls')) ORDER BY ord)
            FILTER (WHERE event_name = 'gen_ai.choice'))) AS output,
        max(b ->> '$.finish_reason') FILTER (WHERE event_name = 'gen_ai.choice') AS finish_reason
    FROM message_events
    GROUP BY trace_id, span_id, source
),
message_source AS (
    SELECT trace_id, span_id, arg_min(input, source) AS input, arg_min(output, source) AS output, arg_min(finish_reason, source) AS finish_reason
    FROM per_message GROUP BY trace_id, span_id
),
-- v1.26 and v1.27: two span events with the whole prompt and completion as JSON.
contents AS (
    SELECT trace_id, span_id,
        max(attributes ->> '$."gen_ai.prompt"') AS prompt, max(attributes ->> '$."gen_ai.completion"') AS completion
    FROM span_events SEMI JOIN found USING (trace_id, span_id)
    WHERE event_name IN ('gen_ai.content.prompt', 'gen_ai.content.completion')
    GROUP BY trace_id, span_id
),
thoughts AS (
    SELECT trace_id, span_id, string_agg(attributes ->> '$."agenttrace.thought"', chr(10) ORDER BY ord) AS thought
    FROM span_events WHERE event_name = 'agenttrace.thought'
    GROUP BY trace_id, span_id
),
messages AS (
    SELECT k.*, t.thought, e.exception_type, e.exception_message,
        coalesce(a."gen_ai.tool.definitions", d.tools) AS tools,
        coalesce(json_of_text(text_of(a."gen_ai.system_instructions")), d.system) AS system,
        coalesce(
            messages(a."gen_ai.input.messages"), messages(d.input), m.input,
            messages(coalesce(a."gen_ai.prompt", json_of_text(c.prompt)))) AS input,
        coalesce(
            messages(a."gen_ai.output.messages"), messages(d.output), m.output,
            messages(coalesce(a."gen_ai.completion", json_of_text(c.completion)))) AS output,
        coalesce(
            decoded(a."gen_ai.response.finish_reasons") ->> '$[0]',
            CASE WHEN json_type(decoded(a."gen_ai.response.finish_reasons")) = 'VARCHAR' THEN decoded(a."gen_ai.response.finish_reasons") ->> '$' END,
            m.finish_reason, decoded(a."gen_ai.output.messages") ->> '$[0].finish_reason') AS finish_reason
    FROM kinds AS k
    LEFT JOIN details AS d USING (trace_id, span_id)
    LEFT JOIN message_source AS m USING (trace_id, span_id)
    LEFT JOIN contents AS c USING (trace_id, span_id)
    LEFT JOIN thoughts AS t USING (trace_id, span_id)
    LEFT JOIN span_exceptions AS e USING (trace_id, span_id)
)
SELECT
    trace_id, span_id, 'gen_ai' AS convention, kind,
    name,
    -- Not a name but what OpenTelemetry's instrumentation of the OpenAI Agents SDK writes where it has none.
    coalesce(nullif(a."gen_ai.agent.name", 'OpenAI Agent'), CASE WHEN kind = 'workflow' THEN a."gen_ai.workflow.name" END) AS agent_name,
    -- A client of the Responses API may name the answer before this one: another id at each call, and no conversation.
    coalesce(CASE WHEN NOT regexp_matches(a."gen_ai.conversation.id", '^(?:ca)?resp_') THEN a."gen_ai.conversation.id" END, a."session.id") AS session_id,
    coalesce(a."user.id", a."enduser.id") AS user_id,
    a."agenttrace.tenant.id" AS tenant_id,
    CASE WHEN kind = 'tool' THEN coalesce(
        a."gen_ai.tool.name", nullif(regexp_extract(name, '^(?:execute_tool|MCP send tools/call|tools/call) (.+)$', 1), '')) END AS tool_name,
    -- OpenLIT's callback of LangChain writes the run's id until the result shows the call's.
    CASE WHEN kind = 'tool' AND NOT (scope_name = 'openlit.instrumentation.langchain' AND coalesce(regexp_matches(a."gen_ai.tool.call.id", '^[0-9a-f]{8}-[0-9a-f]{4}-'), FALSE))
        THEN nullif(nullif(a."gen_ai.tool.call.id", 'unknown'), '') END AS tool_call_id,
    -- What was cut and has no hash of its original cannot be compared with another call's, so it was not captured.
    CASE WHEN kind = 'tool' AND (a."agenttrace.arguments.original_bytes" IS NULL OR a."agenttrace.tool.arguments_hash" IS NOT NULL)
        THEN call_arguments(json_of_text(text_of(a."gen_ai.tool.call.arguments"))) END AS arguments,
    a."agenttrace.tool.arguments_hash" AS arguments_hash,
    CASE WHEN kind = 'tool' THEN result_value(json_of_text(text_of(a."gen_ai.tool.call.result"))) END AS observation,
    CASE WHEN kind = 'tool' THEN result_failed(decoded(a."gen_ai.tool.call.result")) END AS result_failed,
    CASE a."agenttrace.tool.mutates" ->> '$' WHEN 'true' THEN 'mutating' WHEN 'false' THEN 'read_only' END AS mutability,
    CASE WHEN a."agenttrace.tool.mutates" ->> '$' IN ('true', 'false') THEN 'span' END AS mutability_source,
    a."agenttrace.tool.idempotency_key" AS idempotency_key,
    coalesce(a."gen_ai.provider.name", a."gen_ai.system") AS provider,
    coalesce(a."gen_ai.response.model", a."gen_ai.request.model") AS model,
    a."gen_ai.response.id" AS response_id,
    -- System instructions that stand apart from the messages come first, as the model saw them.
    CASE WHEN kind NOT IN ('model', 'agent', 'workflow') THEN NULL
        WHEN system IS NOT NULL AND input IS NOT NULL AND coalesce(input ->> '$[0].role', '') <> 'system'
        THEN to_json(list_concat(
            from_json(messages(to_json([json_object('role', 'system',
                'parts', CASE WHEN json_type(system) = 'ARRAY' THEN system END, 'content', system)])), '["JSON"]'),
            from_json(input, '["JSON"]')))
        ELSE input END AS input_messages,
    CASE WHEN kind IN ('model', 'agent', 'workflow') THEN output END AS output_messages,
    thought,
    tool_definitions(tools) AS offered_tools,
    CASE WHEN kind = 'model' THEN finish_reason END AS finish_reason,
    status_code = 'error' OR error_type IS NOT NULL AS failed,
    a."agenttrace.cancelled" ->> '$' = 'true' AS cancelled,
    coalesce(error_type, exception_type) AS error_type,
    a."agenttrace.error.bases" AS error_bases,
    coalesce(status_message, exception_message) AS error_message,
    coalesce(count_of(a."gen_ai.usage.input_tokens"), count_of(a."gen_ai.usage.prompt_tokens")) AS input_tokens,
    coalesce(count_of(a."gen_ai.usage.output_tokens"), count_of(a."gen_ai.usage.completion_tokens")) AS output_tokens,
    coalesce(count_of(a."gen_ai.usage.cache_read.input_tokens"), count_of(a."gen_ai.usage.cache_read_input_tokens")) AS cached_input_tokens,
    coalesce(
        count_of(a."gen_ai.usage.cache_write.input_tokens"), count_of(a."gen_ai.usage.cache_creation.input_tokens"),
        count_of(a."gen_ai.usage.cache_creation_input_tokens"), count_of(a."gen_ai.usage.cache_write_input_tokens")) AS cache_write_tokens,
    coalesce(count_of(a."gen_ai.usage.reasoning.output_tokens"), count_of(a."gen_ai.usage.reasoning_tokens")) AS reasoning_tokens,
    -- OpenLIT writes 0 where it knows no price.
    coalesce(number_of(a."operation.cost"), CASE WHEN scope_name LIKE 'openlit%' THEN nullif(number_of(a."gen_ai.usage.cost"), 0)
        ELSE number_of(a."gen_ai.usage.cost") END) AS cost_usd,
    1000 * coalesce(
        number_of(a."gen_ai.response.time_to_first_chunk"), number_of(a."gen_ai.client.operation.time_to_first_chunk")) AS time_to_first_token_ms,
    a."agenttrace.user_input" AS user_input,
    a."agenttrace.final_response" AS final_response,
    decoded(a."agenttrace.state.initial") AS initial_state,
    decoded(a."agenttrace.state.final") AS final_state
FROM messages
