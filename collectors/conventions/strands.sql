/* +++
name       = "strands"
extends    = "gen_ai"
rank       = 80
detects    = "scope strands.telemetry.tracer"
where      = "scope_name = 'strands.telemetry.tracer'"
version    = "strands-agents 0.2 to 1.62"
references = ["strands-agents 1.0.0 and 1.62.0, strands/telemetry/tracer.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, operation_name, status_code, from_json(attributes, '{
        "gen_ai.tool.status": "VARCHAR", "tool.status": "VARCHAR", "gen_ai.agent.tools": "JSON", "gen_ai.tool.call.result": "JSON",
        "gen_ai.server.time_to_first_token": "JSON",
        "gen_ai.usage.input_tokens": "JSON", "gen_ai.usage.output_tokens": "JSON", "gen_ai.usage.total_tokens": "JSON",
        "gen_ai.usage.cache_read_input_tokens": "JSON", "gen_ai.usage.cache_write_input_tokens": "JSON"
    }') AS a
    FROM candidates
),
counts AS (
    SELECT trace_id, span_id, count_of(a."gen_ai.usage.input_tokens") + coalesce(count_of(a."gen_ai.usage.cache_read_input_tokens"), 0)
        + coalesce(count_of(a."gen_ai.usage.cache_write_input_tokens"), 0) AS input_and_cache
    FROM found
),
-- Events hold JSON text of content blocks; on a tool span gen_ai.tool.message is the arguments and gen_ai.choice the result.
texts AS (
    SELECT trace_id, span_id, operation_name, ord, event_name,
        coalesce(attributes ->> '$.role', split_part(event_name, '.', 2)) AS role,
        json_of_text(coalesce(attributes ->> '$.content', attributes ->> '$.message')) AS content
    FROM span_events JOIN found USING (trace_id, span_id)
    WHERE event_name IN ('gen_ai.system.message', 'gen_ai.user.message', 'gen_ai.assistant.message', 'gen_ai.tool.message', 'gen_ai.choice')
),
contents AS (
    SELECT trace_id, span_id,
        messages(to_json(list(json_object('role', role, 'content', content) ORDER BY ord) FILTER (WHERE event_name <> 'gen_ai.choice'))) AS input,
        messages(to_json(list(json_object('role', 'assistant', 'content', content) ORDER BY ord) FILTER (WHERE event_name = 'gen_ai.choice'))) AS output,
        arg_max(content, ord) FILTER (WHERE event_name = 'gen_ai.tool.message') AS arguments,
        arg_max(content, ord) FILTER (WHERE event_name = 'gen_ai.choice') AS result
    FROM texts GROUP BY trace_id, span_id
),
-- The opted-in form keeps a tool's result, the same blocks, as an attribute.
results AS (
    SELECT f.trace_id, f.span_id, coalesce(c.result, json_of_text(text_of(a."gen_ai.tool.call.result"))) AS blocks
    FROM found AS f LEFT JOIN contents AS c USING (trace_id, span_id)
    WHERE operation_name = 'execute_tool'
)
SELECT
    f.trace_id, f.span_id, 'strands' AS convention,
    CASE WHEN operation_name IS NULL THEN 'other' END AS kind,
    CASE WHEN operation_name = 'execute_tool' THEN c.arguments END AS arguments,
    CASE WHEN r.blocks IS NOT NULL THEN
        messages(to_json([json_object('role', 'tool', 'tool_call_id', 'x', 'content', r.blocks)])) -> '$[0].parts[0].response' END AS observation,
    CASE WHEN operation_name IN ('chat', 'invoke_agent') THEN c.input END AS input_messages,
    CASE WHEN operation_name IN ('chat', 'invoke_agent') THEN c.output END AS output_messages,
    tool_definitions(a."gen_ai.agent.tools") AS offered_tools,
    status_code = 'error' OR coalesce(a."gen_ai.tool.status", a."tool.status") = 'error' AS failed,
    -- The middle versions hand on Bedrock's counts, whose input leaves the cache out and whose total does not.
    CASE WHEN operation_name = 'chat' AND n.input_and_cache + count_of(a."gen_ai.usage.output_tokens") = count_of(a."gen_ai.usage.total_tokens")
        THEN n.input_and_cache END AS input_tokens,
    number_of(a."gen_ai.server.time_to_first_token") AS time_to_first_token_ms
FROM found AS f LEFT JOIN counts AS n USING (trace_id, span_id) LEFT JOIN contents AS c USING (trace_id, span_id)
LEFT JOIN results AS r USING (trace_id, span_id)
