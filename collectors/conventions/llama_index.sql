/* +++
name       = "llama_index"
rank       = 200
detects    = "scope llamaindex.opentelemetry.tracer"
where      = "scope_name = 'llamaindex.opentelemetry.tracer'"
version    = "llama-index-observability-otel 0.7, llama-index-core 0.14"
references = [
    "llama-index-observability-otel 0.7.0, llama_index/observability/otel/base.py",
    "llama-index-core 0.14.25, llama_index/core/llms/callbacks.py and llama_index/core/agent/workflow",
]
+++ */
WITH found AS (
    SELECT trace_id, span_id, parent_span_id, name, status_code, status_message, start_time_unix_nano AS started, from_json(attributes, '{
        "llamaindex.run_id": "VARCHAR", "llamaindex.step.input_event": "VARCHAR", "llamaindex.step.input_summary": "VARCHAR",
        "session.id": "VARCHAR", "user.id": "VARCHAR"
    }') AS a
    FROM candidates
),
events AS (
    SELECT trace_id, span_id,
        arg_max(attributes, ord) FILTER (WHERE event_name IN ('LLMChatStartEvent', 'LLMCompletionStartEvent')) AS asked,
        arg_max(attributes, ord) FILTER (WHERE event_name IN ('LLMChatEndEvent', 'LLMCompletionEndEvent')) AS answered,
        arg_max(attributes ->> '$.output', ord) FILTER (WHERE event_name IN ('workflow.output', 'step.output')) AS output,
        bool_or(event_name IN ('RetrievalStartEvent', 'EmbeddingStartEvent', 'ReRankStartEvent')) AS retrieves
    FROM span_events SEMI JOIN found USING (trace_id, span_id)
    WHERE source = 1
    GROUP BY trace_id, span_id
),
-- A streamed call's request is sent after its span has ended: the span of an instrumentation below is no child, but the next one under the same parent.
unended AS (
    SELECT f.trace_id, f.span_id, f.parent_span_id, f.started,
        lead(f.started) OVER (PARTITION BY f.trace_id, f.parent_span_id ORDER BY f.started, f.span_id) AS next_started
    FROM found AS f JOIN events AS e ON e.trace_id = f.trace_id AND e.span_id = f.span_id
    WHERE e.asked IS NOT NULL AND e.answered IS NULL
),
sent AS (
    SELECT u.trace_id, u.span_id, count(*) AS calls FROM unended AS u
    JOIN span_in AS s ON s.trace_id = u.trace_id AND s.parent_span_id = u.parent_span_id
        AND s.start_time_unix_nano >= u.started AND (u.next_started IS NULL OR s.start_time_unix_nano < u.next_started)
    WHERE s.scope_name <> 'llamaindex.opentelemetry.tracer'
        AND (s.openinference_kind = 'LLM' OR s.operation_name IN ('chat', 'text_completion', 'generate_content') OR s.attributes LIKE '%"llm.request.type"%')
    GROUP BY ALL
),
kinds AS (
    SELECT f.*, asked, answered, output, a."llamaindex.step.input_summary" AS summary, CASE
        WHEN n.calls > 0 THEN 'other'
        WHEN asked IS NOT NULL OR answered IS NOT NULL THEN 'model'
        WHEN retrieves THEN 'retrieval'
        WHEN regexp_matches(name, 'Tool\.a?call$') THEN 'tool'
        WHEN regexp_matches(name, 'Agent(?:Workflow)?\.run$') THEN 'agent'
        WHEN regexp_matches(name, '\.run$') THEN 'workflow'
        ELSE 'other' END AS kind
    FROM found AS f
    LEFT JOIN events AS e ON e.trace_id = f.trace_id AND e.span_id = f.span_id
    LEFT JOIN sent AS n ON n.trace_id = f.trace_id AND n.span_id = f.span_id
),
prompts AS (
    SELECT trace_id, span_id, started, a."llamaindex.run_id" AS run,
        from_json(decoded(coalesce(asked -> '$.messages', answered -> '$.messages')), '["JSON"]') AS asked
    FROM kinds WHERE kind = 'model'
),
-- A streamed call ends after its span, and its answer is recorded nowhere but in what the next call of the run is sent.
streamed AS (
    SELECT trace_id, span_id, len(asked) AS n, asked[-1] AS last_asked, lead(asked) OVER (PARTITION BY trace_id, run ORDER BY started, span_id) AS next_asked
    FROM prompts
),
continued AS (
    SELECT trace_id, span_id, next_asked[n + 1] AS answer FROM streamed
    WHERE next_asked[n] = last_asked AND next_asked[n + 1] ->> '$.role' = 'assistant'
),
-- The last answer stands in the step around the call, as a Python repr that is cut after 200 characters.
texts AS (
    SELECT trace_id, span_id, parent_span_id, started, json_of_repr(nullif(regexp_extract(output,
        '^(?:StopEvent\(result=)?AgentOutput\(response=ChatMessage\(role=<[^<>]*>, additional_kwargs=\{[^{}]*\}, blocks=\[TextBlock\(block_type=''text'', text=(''(?:[^''\\]|\\.)*''|"(?:[^"\\]|\\.)*")\)\]',
        1), '')) ->> '$' AS text
    FROM kinds WHERE output IS NOT NULL
),
last_texts AS (
    SELECT trace_id, parent_span_id AS span_id, arg_max(text, started) AS text FROM texts WHERE text IS NOT NULL GROUP BY ALL
),
contents AS (
    SELECT k.trace_id, k.span_id,
        coalesce(k.asked, k.answered) AS q,
        coalesce(
            CASE WHEN json_exists(k.answered, '$."response.message.blocks"') THEN messages(to_json([json_object(
                'role', 'assistant', 'blocks', decoded(k.answered -> '$."response.message.blocks"'),
                'additional_kwargs', json_object('tool_calls', decoded(k.answered -> '$."response.message.additional_kwargs.tool_calls"')))])) END,
            CASE WHEN json_exists(k.answered, '$."response.text"') THEN messages(to_json([json_object(
                'role', 'assistant', 'content', k.answered ->> '$."response.text"')])) END,
            messages(to_json([c.answer])),
            CASE WHEN t.text <> '' THEN messages(to_json([json_object('role', 'assistant', 'content', t.text)])) END) AS output,
        from_json(k.answered, '{
            "response.raw.id": "VARCHAR", "response.raw.model": "VARCHAR", "response.raw.choices": "VARCHAR", "response.raw.stop_reason": "VARCHAR",
            "response.raw.usage.prompt_tokens": "JSON", "response.raw.usage.input_tokens": "JSON", "response.additional_kwargs.prompt_tokens": "JSON",
            "response.raw.usage.completion_tokens": "JSON", "response.raw.usage.output_tokens": "JSON", "response.additional_kwargs.completion_tokens": "JSON",
            "response.raw.usage.prompt_tokens_details.cached_tokens": "JSON", "response.raw.usage.input_tokens_details.cached_tokens": "JSON",
            "response.raw.usage.cache_read_input_tokens": "JSON", "response.raw.usage.cache_creation_input_tokens": "JSON",
            "response.raw.usage.completion_tokens_details.reasoning_tokens": "JSON", "response.raw.usage.output_tokens_details.reasoning_tokens": "JSON"
        }') AS r
    FROM kinds AS k
    LEFT JOIN continued AS c ON c.trace_id = k.trace_id AND c.span_id = k.span_id
    LEFT JOIN texts AS t ON t.trace_id = k.trace_id AND t.span_id = k.parent_span_id
    WHERE k.kind = 'model'
)
SELECT
    k.trace_id, k.span_id, 'llama_index' AS convention, kind, name,
    -- The steps of a workflow name their agent, those of the run do not.
    nullif(regexp_extract(coalesce(k.output, '') || ' ' || coalesce(summary, ''), 'current_agent_name=''([^'']+)''', 1), '') AS agent_name,
    a."session.id" AS session_id, a."user.id" AS user_id,
    -- The step's event is a Python repr, cut where it is long.
    CASE WHEN kind = 'tool' THEN coalesce(nullif(regexp_extract(summary, '^ToolCall\(tool_name=''([^'']+)''', 1), ''), regexp_replace(name, '\.a?call$', '')) END AS tool_name,
    CASE WHEN kind = 'tool' THEN nullif(regexp_extract(summary, 'tool_id=''([^'']+)''\)$', 1), '') END AS tool_call_id,
    CASE WHEN kind = 'tool' AND starts_with(summary, 'ToolCall(') THEN json_of_repr(summary) -> '$.tool_kwargs' END AS arguments,
    CASE WHEN kind = 'model' THEN regexp_replace(lower(q ->> '$."model_dict.class_name"'), '_?llm$', '') END AS provider,
    CASE WHEN kind = 'model' THEN coalesce(r."response.raw.model", q ->> '$."model_dict.model_name"', q ->> '$."model_dict.model"') END AS model,
    r."response.raw.id" AS response_id,
    CASE WHEN kind = 'model' THEN coalesce(messages(q -> '$.messages'), messages(to_json([json_object('role', 'user', 'content', q -> '$.prompt')]))) END AS input_messages,
    c.output AS output_messages,
    CASE WHEN kind = 'model' THEN tool_definitions(q -> '$."additional_kwargs.tools"') END AS offered_tools,
    coalesce(r."response.raw.stop_reason", json_of_text(r."response.raw.choices") ->> '$[0].finish_reason') AS finish_reason,
    status_code = 'error' AS failed,
    e.exception_type AS error_type,
    coalesce(status_message, e.exception_message) AS error_message,
    -- Anthropic counts what it has cached apart.
    coalesce(count_of(r."response.raw.usage.prompt_tokens"), count_of(r."response.raw.usage.input_tokens")
            + coalesce(count_of(r."response.raw.usage.cache_read_input_tokens"), 0) + coalesce(count_of(r."response.raw.usage.cache_creation_input_tokens"), 0),
        count_of(r."response.additional_kwargs.prompt_tokens")) AS input_tokens,
    coalesce(count_of(r."response.raw.usage.completion_tokens"), count_of(r."response.raw.usage.output_tokens"),
        count_of(r."response.additional_kwargs.completion_tokens")) AS output_tokens,
    coalesce(count_of(r."response.raw.usage.prompt_tokens_details.cached_tokens"), count_of(r."response.raw.usage.input_tokens_details.cached_tokens"),
        count_of(r."response.raw.usage.cache_read_input_tokens")) AS cached_input_tokens,
    count_of(r."response.raw.usage.cache_creation_input_tokens") AS cache_write_tokens,
    coalesce(count_of(r."response.raw.usage.completion_tokens_details.reasoning_tokens"),
        count_of(r."response.raw.usage.output_tokens_details.reasoning_tokens")) AS reasoning_tokens,
    CASE WHEN kind = 'agent' THEN nullif(coalesce(t.text, l.text), '') END AS final_response
FROM kinds AS k
LEFT JOIN contents AS c ON c.trace_id = k.trace_id AND c.span_id = k.span_id
LEFT JOIN span_exceptions AS e ON e.trace_id = k.trace_id AND e.span_id = k.span_id
LEFT JOIN texts AS t ON t.trace_id = k.trace_id AND t.span_id = k.span_id
LEFT JOIN last_texts AS l ON l.trace_id = k.trace_id AND l.span_id = k.span_id
