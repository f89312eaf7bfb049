/* +++
name       = "claude_code"
rank       = 120
detects    = "scope com.anthropic.claude_code.*, else names of claude_code.*"
where      = "name LIKE 'claude_code.%' OR scope_name LIKE 'com.anthropic.claude_code.%'"
version    = "Claude Code 2.1, beta spans and log events"
references = [
    "@anthropic-ai/claude-code 2.1.197, spans and log events as recorded",
    "code.claude.com/docs, monitoring usage",
]
+++ */
WITH parsed AS MATERIALIZED (
    SELECT trace_id, span_id, parent_span_id, name, start_time_unix_nano AS started, end_time_unix_nano AS ended, status_code, status_message,
        from_json(attributes, '{
            "span.type": "VARCHAR", "session.id": "VARCHAR", "user.id": "VARCHAR", "gen_ai.agent.name": "VARCHAR", "agent.name": "VARCHAR",
            "user_prompt": "VARCHAR", "prompt": "VARCHAR",
            "model": "VARCHAR", "gen_ai.request.model": "VARCHAR", "gen_ai.system": "VARCHAR", "request_id": "VARCHAR", "stop_reason": "VARCHAR",
            "input_tokens": "JSON", "output_tokens": "JSON", "cache_read_tokens": "JSON", "cache_creation_tokens": "JSON",
            "cost_usd": "JSON", "ttft_ms": "JSON", "success": "JSON", "error": "VARCHAR", "error_type": "VARCHAR", "status_code": "VARCHAR",
            "response": "VARCHAR", "response.model_output": "VARCHAR", "new_context": "VARCHAR", "tools": "JSON",
            "gen_ai.tool.name": "VARCHAR", "gen_ai.tool.call.arguments": "JSON", "gen_ai.tool.call.result": "JSON",
            "tool_name": "VARCHAR", "tool_use_id": "VARCHAR", "tool_input": "VARCHAR", "tool_parameters": "VARCHAR",
            "full_command": "VARCHAR", "file_path": "VARCHAR", "decision": "VARCHAR"
        }') AS a
    FROM candidates
),
found AS MATERIALIZED (
    SELECT *,
        coalesce(nullif(regexp_extract(name, '^claude_code\.(.+)$', 1), ''), regexp_replace(a."span.type", '^claude_code\.', '')) AS type,
        type IN ('user_prompt', 'api_request', 'api_error', 'tool_result', 'tool_decision', 'assistant_response') AS is_log,
        -- Without them the input tokens are those that no cache held.
        count_of(a.input_tokens) + coalesce(count_of(a.cache_read_tokens), 0) + coalesce(count_of(a.cache_creation_tokens), 0) AS all_input,
        count_of(a.output_tokens) AS output
    FROM parsed
),
-- One call is a span and a log record, where both are exported. The record's content joins the span. Ids repeat with test models.
same_tool AS (
    SELECT l.trace_id, l.span_id, s.span_id AS counterpart
    FROM found AS l
    ASOF JOIN (FROM found WHERE type = 'tool' QUALIFY row_number() OVER (PARTITION BY trace_id, a.tool_use_id, started ORDER BY span_id) = 1) AS s
        ON s.trace_id = l.trace_id AND s.a.tool_use_id = l.a.tool_use_id AND l.ended >= s.started
    WHERE l.type IN ('tool_result', 'tool_decision')
),
-- Providers other than Anthropic's send no request id: then the last call of those tokens that had begun.
same_model AS (
    SELECT l.trace_id, l.span_id, s.span_id AS counterpart
    FROM found AS l
    ASOF JOIN (
        FROM found WHERE type = 'llm_request'
        QUALIFY row_number() OVER (PARTITION BY trace_id, a.request_id, all_input, output, started ORDER BY span_id) = 1
    ) AS s ON s.trace_id = l.trace_id
        AND coalesce(s.a.request_id, '') = coalesce(l.a.request_id, '')
        AND coalesce(s.all_input, -1) = coalesce(l.all_input, -1) AND coalesce(s.output, -1) = coalesce(l.output, -1) AND l.ended >= s.started
    WHERE l.type = 'api_request'
),
traced AS (
    SELECT trace_id, bool_or(type = 'interaction') AS has_prompt, bool_or(type = 'llm_request') AS has_calls, bool_or(type = 'tool') AS has_tools
    FROM found WHERE NOT is_log GROUP BY trace_id
),
counterparts AS MATERIALIZED (
    FROM same_tool UNION FROM same_model
),
-- Records that stand for themselves, for want of a span.
rows AS MATERIALIZED (
    SELECT f.*, CASE
        WHEN f.type = 'interaction' THEN 'agent'
        WHEN f.type = 'llm_request' THEN 'model'
        WHEN f.type = 'tool' THEN 'tool'
        WHEN NOT is_log THEN 'other'
        WHEN f.type = 'assistant_response' OR c.counterpart IS NOT NULL THEN 'drop'
        WHEN f.type = 'user_prompt' THEN CASE WHEN t.has_prompt THEN 'drop' ELSE 'agent' END
        WHEN f.type = 'api_request' THEN CASE WHEN t.has_calls AND f.a.request_id IS NULL THEN 'drop' ELSE 'model' END
        WHEN f.type = 'api_error' THEN CASE WHEN t.has_calls THEN 'drop' ELSE 'model' END
        WHEN t.has_tools AND f.a.tool_use_id IS NULL THEN 'drop'
        ELSE 'tool' END AS kind
    FROM found AS f
    LEFT JOIN counterparts AS c USING (trace_id, span_id)
    LEFT JOIN traced AS t USING (trace_id)
),
-- A session without prompt ids has several prompts in one trace.
prompts AS MATERIALIZED (
    SELECT r.trace_id, r.span_id, p.span_id AS prompt
    FROM rows AS r
    ASOF JOIN (FROM rows WHERE is_log AND kind = 'agent' QUALIFY row_number() OVER (PARTITION BY trace_id, ended ORDER BY span_id) = 1) AS p ON p.trace_id = r.trace_id AND r.ended >= p.ended
    WHERE r.is_log AND r.kind IN ('model', 'tool')
),
prompt_ends AS (
    SELECT p.trace_id, p.prompt AS span_id, max(r.ended) AS ended FROM prompts AS p JOIN rows AS r USING (trace_id, span_id) GROUP BY ALL
),
executions AS (
    SELECT trace_id, parent_span_id AS span_id, min(started) AS started, max(ended) AS ended,
        bool_or(coalesce(lower(a.success ->> '$') = 'false', FALSE) OR status_code = 'error') AS failed, max(coalesce(a.error, status_message)) AS error
    FROM found WHERE type = 'tool.execution' GROUP BY ALL
),
waits AS (
    SELECT trace_id, parent_span_id AS span_id, bool_or(coalesce(a.decision = 'reject', FALSE)) AS rejected
    FROM found WHERE type = 'tool.blocked_on_user' GROUP BY ALL
),
outputs AS (
    SELECT trace_id, span_id, arg_max(attributes ->> '$.output', ord) AS output, arg_max(attributes ->> '$.content', ord) AS content
    FROM span_events SEMI JOIN found USING (trace_id, span_id)
    WHERE source = 1 AND event_name = 'tool.output' GROUP BY ALL
),
records AS MATERIALIZED (
    SELECT l.trace_id, coalesce(c.counterpart, l.span_id) AS span_id,
        max(l.a.tool_input) AS tool_input, max(l.a.tool_parameters) AS tool_parameters, max(l.a.error) AS error, max(l.a.error_type) AS error_type,
        bool_or(lower(l.a.success ->> '$') = 'false') AS failed, max(number_of(l.a.cost_usd)) AS cost_usd, bool_or(l.type = 'tool_decision') AS rejected
    FROM found AS l LEFT JOIN counterparts AS c USING (trace_id, span_id)
    WHERE l.is_log GROUP BY ALL
),
tools AS MATERIALIZED (
    SELECT r.trace_id, r.span_id, r.parent_span_id, r.is_log, r.a.tool_use_id AS id, coalesce(x.started, r.started) AS started, coalesce(x.ended, r.ended) AS ended,
        -- A record names no tool of an MCP server outside of its parameters.
        CASE WHEN r.a.tool_name = 'mcp_tool' AND json_of_text(l.tool_parameters) ->> '$.mcp_tool_name' IS NOT NULL
            THEN concat_ws('__', 'mcp', json_of_text(l.tool_parameters) ->> '$.mcp_server_name', json_of_text(l.tool_parameters) ->> '$.mcp_tool_name')
            -- A gateway may add the keys of OpenTelemetry to the spans that it passes on.
            ELSE coalesce(r.a."gen_ai.tool.name", r.a.tool_name) END AS tool_name,
        regexp_replace(coalesce(l.tool_input, r.a.tool_input), '^\[TOOL INPUT: [^\]]*\]\s*', '') AS given,
        CASE
            -- Long values are cut.
            WHEN given IS NOT NULL THEN CASE WHEN json_valid(given) AND NOT regexp_matches(given, '(?:…|\.\.\.) ?[\[(<]truncated') THEN given::JSON END
            WHEN r.a.tool_name = 'Bash' AND json_of_text(l.tool_parameters) ->> '$.full_command' IS NOT NULL THEN json_merge_patch(
                '{}', json_object('command', json_of_text(l.tool_parameters) -> '$.full_command', 'description', json_of_text(l.tool_parameters) -> '$.description'))
            WHEN r.a.tool_name = 'Bash' AND r.a.full_command IS NOT NULL THEN json_object('command', r.a.full_command)
            WHEN r.a.tool_name = 'Read' AND r.a.file_path IS NOT NULL THEN json_object('file_path', r.a.file_path)
            WHEN r.a.tool_name = 'Write' AND o.content IS NOT NULL AND r.a.file_path IS NOT NULL
                THEN json_object('file_path', r.a.file_path, 'content', o.content)
        END AS arguments,
        CASE WHEN starts_with(r.a.new_context, '[TOOL RESULT: ') THEN regexp_replace(r.a.new_context, '^\[TOOL RESULT: [^\]]*\]\s*', '')
            ELSE coalesce(o.output, CASE WHEN r.a.tool_name IN ('Read', 'Grep', 'Glob') THEN o.content END) END AS result,
        coalesce(x.failed, FALSE) OR coalesce(l.failed, FALSE) OR r.status_code = 'error' OR coalesce(lower(r.a.success ->> '$') = 'false', FALSE) AS failed,
        l.error_type, coalesce(l.error, x.error, r.status_message) AS error,
        -- What the user or a rule refused has no execution.
        CASE WHEN (l.rejected OR w.rejected) AND x.span_id IS NULL THEN FALSE END AS tool_ran
    FROM rows AS r
    LEFT JOIN executions AS x USING (trace_id, span_id)
    LEFT JOIN waits AS w USING (trace_id, span_id)
    LEFT JOIN outputs AS o USING (trace_id, span_id)
    LEFT JOIN records AS l USING (trace_id, span_id)
    WHERE r.kind = 'tool'
),
-- Nothing records what a model answered but its last text; the tools that ran next to it after it had begun are what it asked for.
calls AS MATERIALIZED (
    SELECT trace_id, span_id, CASE WHEN is_log THEN '' ELSE coalesce(parent_span_id, '') END AS lane, started, is_log, a.request_id AS request_id, a.new_context AS context,
        -- Titles, summaries and the like are asked of another model, with less to read.
        coalesce(a.model = first_value(a.model) OVER (PARTITION BY trace_id, lane ORDER BY all_input DESC NULLS LAST, span_id), TRUE) AS is_main
    FROM rows WHERE kind = 'model'
),
models AS MATERIALIZED (
    SELECT *, lead(span_id) OVER (PARTITION BY trace_id, lane, is_main ORDER BY started, span_id) IS NOT NULL AS goes_on FROM calls
),
-- Detailed spans hold what is new to the model: [USER] and [TOOL RESULT: id], each with its text.
contexts AS MATERIALIZED (
    SELECT trace_id, span_id, lane, started, p.ord AS ord, nullif(regexp_extract(p.part, '^\[TOOL RESULT: ([^\]]*)\]', 1), '') AS id,
        regexp_extract(p.part, '^\[[^\]]*\]\s*(.*)$', 1, 's') AS text
    FROM (
        SELECT *, unnest(list_transform(string_split(context, chr(10) || chr(10) || '---' || chr(10) || chr(10)),
            lambda part, i: struct_pack(part := part, ord := i))) AS p
        FROM models WHERE context LIKE '[USER]%' OR context LIKE '[TOOL RESULT: %'
    )
    WHERE p.part LIKE '[USER]%' OR p.part LIKE '[TOOL RESULT: %'
),
inputs AS (
    SELECT trace_id, span_id, list(CASE WHEN id IS NULL THEN json_object('role', 'user', 'content', text)
        ELSE json_object('role', 'tool', 'tool_call_id', id, 'content', text, 'status', CASE WHEN starts_with(text, '<tool_use_error>') THEN 'error' END) END ORDER BY ord) AS input
    FROM contexts GROUP BY ALL
),
asked AS (
    SELECT trace_id, CASE WHEN is_log THEN '' ELSE coalesce(parent_span_id, '') END AS lane, started, id, tool_name, arguments
    FROM tools
    UNION ALL
    -- A tool that does not exist has no span, and only its refusal names it.
    SELECT c.trace_id, c.lane, c.started - 1, c.id, regexp_extract(c.text, 'No such tool available: ([\w.:/-]*[\w])', 1) AS tool_name, NULL
    FROM contexts AS c ANTI JOIN tools AS t ON t.trace_id = c.trace_id AND t.id = c.id
    WHERE c.id IS NOT NULL AND tool_name <> ''
),
requests AS (
    SELECT m.trace_id, m.span_id, list(json_object('id', t.id, 'name', t.tool_name, 'arguments', t.arguments) ORDER BY t.started, t.id) AS calls
    FROM asked AS t
    ASOF JOIN (FROM models WHERE is_main QUALIFY row_number() OVER (PARTITION BY trace_id, lane, started ORDER BY span_id) = 1) AS m ON m.trace_id = t.trace_id AND m.lane = t.lane AND t.started >= m.started
    GROUP BY ALL
),
replies AS (
    SELECT m.trace_id, m.span_id, captured(l.a.response) AS reply, l.ended
    FROM found AS l
    ASOF JOIN (FROM models QUALIFY row_number() OVER (PARTITION BY trace_id, request_id, started ORDER BY span_id) = 1) AS m
        ON m.trace_id = l.trace_id AND m.request_id = l.a.request_id AND l.ended >= m.started
    WHERE l.type = 'assistant_response'
    UNION ALL
    SELECT m.trace_id, m.span_id, captured(l.a.response), l.ended
    FROM found AS l
    ASOF JOIN (FROM models QUALIFY row_number() OVER (PARTITION BY trace_id, started ORDER BY span_id) = 1) AS m ON m.trace_id = l.trace_id AND l.ended >= m.started
    WHERE l.type = 'assistant_response' AND l.a.request_id IS NULL
),
texts AS (
    SELECT trace_id, span_id, string_agg(reply, chr(10) ORDER BY ended) AS reply FROM replies GROUP BY ALL
)
SELECT
    r.trace_id, r.span_id, 'claude_code' AS convention, r.kind, CASE WHEN r.is_log THEN 'log' END AS origin,
    p.prompt AS parent_span_id,
    t.started AS started,
    coalesce(t.ended, e.ended) AS ended,
    coalesce(a."gen_ai.agent.name", a."agent.name", CASE WHEN r.kind = 'agent' THEN 'claude-code' END) AS agent_name,
    a."session.id" AS session_id,
    a."user.id" AS user_id,
    t.tool_name,
    CASE WHEN r.kind = 'tool' THEN a.tool_use_id END AS tool_call_id,
    coalesce(t.arguments, call_arguments(json_of_text(text_of(a."gen_ai.tool.call.arguments")))) AS arguments,
    coalesce(decoded(to_json(captured(t.result))), result_value(json_of_text(text_of(a."gen_ai.tool.call.result")))) AS observation,
    t.tool_ran,
    CASE WHEN r.kind = 'model' THEN coalesce(a."gen_ai.system", 'anthropic') END AS provider,
    CASE WHEN r.kind = 'model' THEN coalesce(a.model, a."gen_ai.request.model") END AS model,
    CASE WHEN r.kind = 'model' THEN a.request_id END AS response_id,
    messages(to_json(i.input)) AS input_messages,
    CASE WHEN r.kind = 'model' AND (q.calls IS NOT NULL OR coalesce(x.reply, captured(a."response.model_output")) IS NOT NULL)
        THEN messages(to_json([json_object('role', 'assistant', 'content', coalesce(x.reply, captured(a."response.model_output")), 'tool_calls', q.calls)]))
    END AS output_messages,
    CASE WHEN r.kind = 'model' THEN tool_definitions(a.tools) END AS offered_tools,
    -- A record has none; the model is asked again after what it asked for.
    coalesce(a.stop_reason, CASE WHEN m.is_log AND m.is_main AND m.goes_on AND x.reply IS NULL THEN 'tool_use' END) AS finish_reason,
    CASE WHEN r.kind = 'tool' THEN t.failed
        ELSE status_code = 'error' OR r.type = 'api_error' OR coalesce(lower(a.success ->> '$') = 'false', FALSE) END AS failed,
    coalesce(t.error_type, a.error_type, CASE WHEN r.type = 'api_error' THEN a.status_code END) AS error_type,
    coalesce(t.error, a.error, status_message) AS error_message,
    CASE WHEN r.kind = 'model' THEN r.all_input END AS input_tokens,
    CASE WHEN r.kind = 'model' THEN r.output END AS output_tokens,
    CASE WHEN r.kind = 'model' THEN count_of(a.cache_read_tokens) END AS cached_input_tokens,
    CASE WHEN r.kind = 'model' THEN count_of(a.cache_creation_tokens) END AS cache_write_tokens,
    CASE WHEN r.kind = 'model' THEN l.cost_usd END AS cost_usd,
    number_of(a.ttft_ms) AS time_to_first_token_ms,
    CASE WHEN r.kind = 'agent' THEN captured(coalesce(a.user_prompt, a.prompt)) END AS user_input
FROM rows AS r
LEFT JOIN tools AS t USING (trace_id, span_id)
LEFT JOIN prompts AS p USING (trace_id, span_id)
LEFT JOIN prompt_ends AS e USING (trace_id, span_id)
LEFT JOIN requests AS q USING (trace_id, span_id)
LEFT JOIN texts AS x USING (trace_id, span_id)
LEFT JOIN models AS m USING (trace_id, span_id)
LEFT JOIN inputs AS i USING (trace_id, span_id)
LEFT JOIN records AS l USING (trace_id, span_id)
