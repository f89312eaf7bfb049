/* +++
name       = "codex"
rank       = 125
detects    = "log events codex.*"
where      = "name IN ('codex.user_prompt', 'codex.sse_event', 'codex.api_request', 'codex.websocket_request', 'codex.tool_result', 'codex.tool_decision')"
version    = "Codex CLI 0.30 to 0.171"
references = [
    "@openai/codex 0.171.0, log events as recorded",
    "openai/codex, codex-rs/otel/src/events/session_telemetry.rs",
]
+++ */
WITH parsed AS (
    SELECT trace_id, span_id, name, start_time_unix_nano AS started, end_time_unix_nano AS ended, from_json(attributes, '{
        "conversation.id": "VARCHAR", "user.account_id": "VARCHAR", "model": "VARCHAR", "prompt": "VARCHAR",
        "input_token_count": "JSON", "output_token_count": "JSON", "cached_token_count": "JSON", "cache_write_token_count": "JSON",
        "reasoning_token_count": "JSON", "ttft_ms": "JSON",
        "http.response.status_code": "VARCHAR", "error.message": "VARCHAR", "success": "VARCHAR",
        "tool_name": "VARCHAR", "call_id": "VARCHAR", "arguments": "VARCHAR", "output": "VARCHAR", "tool_result_seq": "JSON"
    }') AS a
    FROM candidates
),
answered AS (
    SELECT DISTINCT trace_id, a.call_id AS call_id FROM parsed WHERE name = 'codex.tool_result'
),
refused AS (
    SELECT DISTINCT trace_id, a.call_id AS call_id FROM parsed WHERE name = 'codex.tool_decision'
),
rows AS (
    SELECT p.*, r.call_id IS NOT NULL AS is_refused, CASE
        WHEN name = 'codex.user_prompt' THEN 'agent'
        WHEN name = 'codex.tool_result' THEN 'tool'
        WHEN name = 'codex.tool_decision' THEN CASE WHEN d.call_id IS NULL THEN 'tool' ELSE 'drop' END
        WHEN name = 'codex.sse_event' THEN 'model'
        -- A request that failed is a call of its own; of one that did not, the stream's end is the call.
        WHEN p.a."error.message" IS NOT NULL OR TRY_CAST(p.a."http.response.status_code" AS INTEGER) >= 400 THEN 'model'
        ELSE 'drop' END AS kind
    FROM parsed AS p
    LEFT JOIN answered AS d ON d.trace_id = p.trace_id AND d.call_id = p.a.call_id
    LEFT JOIN refused AS r ON r.trace_id = p.trace_id AND r.call_id = p.a.call_id
),
-- A conversation is one trace, of which each prompt begins a run.
prompts AS (
    SELECT r.trace_id, r.span_id, r.ended, p.span_id AS prompt
    FROM rows AS r
    ASOF JOIN (FROM rows WHERE kind = 'agent' QUALIFY row_number() OVER (PARTITION BY trace_id, ended ORDER BY span_id) = 1) AS p ON p.trace_id = r.trace_id AND r.ended >= p.ended
    WHERE r.kind IN ('model', 'tool')
),
prompt_ends AS (
    SELECT trace_id, prompt AS span_id, max(ended) AS ended FROM prompts GROUP BY ALL
),
-- The end of a stream has no duration; the call began with its request, after the call before.
models AS (
    SELECT m.trace_id, m.span_id,
        CASE WHEN m.name = 'codex.sse_event' AND q.started >= coalesce(lag(m.ended) OVER (PARTITION BY m.trace_id ORDER BY m.ended, m.span_id), 0)
            THEN q.started ELSE m.started END AS started
    FROM (FROM rows WHERE kind = 'model') AS m
    ASOF LEFT JOIN (
        FROM rows WHERE kind = 'drop' AND name IN ('codex.api_request', 'codex.websocket_request')
        QUALIFY row_number() OVER (PARTITION BY trace_id, ended ORDER BY span_id) = 1
    ) AS q
        ON q.trace_id = m.trace_id AND m.ended >= q.ended
),
tools AS (
    SELECT trace_id, span_id, started, a.call_id AS id, a.tool_name AS tool_name, count_of(a.tool_result_seq) AS seq, json_of_text(a.arguments) AS arguments,
        -- The text that the model got, behind a head about the process; older versions give both as JSON.
        json_of_text(a.output) AS given,
        CASE WHEN json_exists(given, '$.metadata.exit_code') THEN given ->> '$.metadata.exit_code'
            ELSE regexp_extract(a.output, '^(?:[^\n]*\n){0,4}(?:Process exited with code|Exit code:) (-?\d+)\n', 1) END AS exit_code,
        CASE WHEN json_exists(given, '$.metadata.exit_code') THEN given ->> '$.output'
            ELSE regexp_replace(a.output, '^(?:(?:Chunk ID|Wall time|Process exited|Process running|Exit code|Original token count|Total output lines)[^\n]*\n)+Output:\n', '')
        END AS result
    FROM rows WHERE kind = 'tool'
),
-- No record holds the model's answer; each call that it asked for has a result.
requests AS (
    SELECT m.trace_id, m.span_id, list(json_object('id', t.id, 'name', t.tool_name, 'arguments', t.arguments) ORDER BY t.started, t.seq, t.id) AS calls
    FROM tools AS t
    ASOF JOIN (FROM models QUALIFY row_number() OVER (PARTITION BY trace_id, started ORDER BY span_id) = 1) AS m ON m.trace_id = t.trace_id AND t.started >= m.started
    GROUP BY ALL
)
SELECT
    r.trace_id, r.span_id, 'codex' AS convention, r.kind, 'log' AS origin,
    p.prompt AS parent_span_id,
    m.started AS started,
    e.ended AS ended,
    CASE WHEN r.kind = 'agent' THEN 'codex' END AS agent_name,
    a."conversation.id" AS session_id,
    a."user.account_id" AS user_id,
    t.tool_name,
    t.id AS tool_call_id,
    t.arguments,
    decoded(to_json(captured(t.result))) AS observation,
    CASE WHEN r.kind = 'tool' THEN lower(a.success) = 'false' OR TRY_CAST(t.exit_code AS INTEGER) <> 0 END AS result_failed,
    CASE WHEN r.kind = 'tool' AND (r.is_refused OR starts_with(a.output, 'unsupported call: ')) THEN FALSE END AS tool_ran,
    CASE WHEN r.kind = 'model' THEN 'openai' END AS provider,
    CASE WHEN r.kind = 'model' THEN a.model END AS model,
    CASE WHEN q.calls IS NOT NULL THEN messages(to_json([json_object('role', 'assistant', 'tool_calls', q.calls)])) END AS output_messages,
    CASE WHEN q.calls IS NOT NULL THEN 'tool_call' END AS finish_reason,
    CASE WHEN r.kind = 'model' THEN a."error.message" IS NOT NULL OR TRY_CAST(a."http.response.status_code" AS INTEGER) >= 400 END AS failed,
    CASE WHEN r.kind = 'model' AND TRY_CAST(a."http.response.status_code" AS INTEGER) >= 400 THEN a."http.response.status_code" END AS error_type,
    CASE WHEN r.kind = 'model' THEN a."error.message" END AS error_message,
    count_of(a.input_token_count) AS input_tokens,
    count_of(a.output_token_count) AS output_tokens,
    count_of(a.cached_token_count) AS cached_input_tokens,
    count_of(a.cache_write_token_count) AS cache_write_tokens,
    count_of(a.reasoning_token_count) AS reasoning_tokens,
    number_of(a.ttft_ms) AS time_to_first_token_ms,
    captured(a.prompt) AS user_input
FROM rows AS r
LEFT JOIN models AS m USING (trace_id, span_id)
LEFT JOIN tools AS t USING (trace_id, span_id)
LEFT JOIN prompts AS p USING (trace_id, span_id)
LEFT JOIN prompt_ends AS e USING (trace_id, span_id)
LEFT JOIN requests AS q USING (trace_id, span_id)
