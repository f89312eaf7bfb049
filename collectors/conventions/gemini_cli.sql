/* +++
name       = "gemini_cli"
extends    = "gen_ai"
rank       = 180
detects    = "scope gemini-cli, else gen_ai.agent.name gemini-cli"
where      = "scope_name = 'gemini-cli' OR agent_name = 'gemini-cli'"
version    = "Gemini CLI 0.61"
references = [
    "@google/gemini-cli 0.61.0, spans and log events as recorded",
    "google-gemini/gemini-cli, packages/core/src/telemetry",
]
+++ */
WITH found AS (
    SELECT trace_id, span_id, operation_name, tool_name, start_time_unix_nano AS started, from_json(attributes, '{
        "gen_ai.tool.call_id": "VARCHAR", "gen_ai.tool.definitions": "VARCHAR", "gen_ai.input.messages": "VARCHAR", "gen_ai.output.messages": "VARCHAR"
    }') AS a
    FROM candidates
),
-- On a tool's span the messages are the request and what became of it.
parsed AS (
    SELECT *, json_of_text(a."gen_ai.input.messages") AS request, json_of_text(a."gen_ai.output.messages") AS outcome,
        outcome -> '$.response.responseParts[0].functionResponse.response' AS response,
        row_number() OVER (PARTITION BY trace_id, operation_name, tool_name ORDER BY started, span_id) AS nth
    FROM found
),
-- The record of a call stands beside its scheduling, in the same trace; it names no id.
records AS (
    SELECT trace_id, attributes ->> '$.function_name' AS tool_name, json_of_text(attributes ->> '$.function_args') AS arguments,
        lower(attributes ->> '$.success') = 'false' AS failed, attributes ->> '$.decision' = 'reject' AS refused,
        coalesce(attributes ->> '$."error.type"', attributes ->> '$.error_type') AS error_type,
        coalesce(attributes ->> '$."error.message"', attributes ->> '$.error') AS error_message,
        row_number() OVER (PARTITION BY trace_id, attributes ->> '$.function_name' ORDER BY ord, span_id) AS nth
    FROM span_events SEMI JOIN found USING (trace_id)
    WHERE source = 2 AND event_name = 'gemini_cli.tool_call'
)
SELECT
    p.trace_id, p.span_id, 'gemini_cli' AS convention,
    p.a."gen_ai.tool.call_id" AS tool_call_id,
    CASE WHEN p.operation_name = 'tool_call' THEN coalesce(p.request -> '$.args', r.arguments) END AS arguments,
    CASE WHEN p.operation_name = 'tool_call' THEN
        coalesce(
            json_of_text(regexp_extract(p.response ->> '$.output', '^<untrusted_context>\n(.*)\n</untrusted_context>$', 1, 's')),
            decoded(p.response -> '$.output'), p.response) END AS observation,
    -- A command that failed is a call that went well to its tool.
    CASE WHEN p.tool_name = 'run_shell_command' AND regexp_matches(p.response ->> '$.output', '(?:^|\n)Exit Code: [1-9]') THEN TRUE END AS result_failed,
    CASE WHEN r.refused THEN FALSE END AS tool_ran,
    CASE WHEN p.outcome ->> '$.status' = 'error' OR r.failed THEN TRUE END AS failed,
    CASE WHEN p.outcome ->> '$.status' = 'cancelled' THEN TRUE END AS cancelled,
    coalesce(p.outcome ->> '$.response.errorType', r.error_type) AS error_type,
    coalesce(p.response ->> '$.error', r.error_message) AS error_message,
    tool_definitions(to_json(json_of_text(p.a."gen_ai.tool.definitions") -> '$[*].functionDeclarations[*]')) AS offered_tools
FROM parsed AS p
LEFT JOIN records AS r ON r.trace_id = p.trace_id AND r.tool_name = p.tool_name AND r.nth = p.nth AND p.operation_name = 'tool_call'
