/* +++
name       = "semantic_kernel"
extends    = "gen_ai"
rank       = 100
detects    = "scope semantic_kernel.*, agent_runtime * or Microsoft.SemanticKernel*, or the key sk.available_functions"
where      = '''
    scope_name LIKE 'semantic\_kernel.%' ESCAPE '\' OR scope_name LIKE 'agent\_runtime %' ESCAPE '\' OR scope_name LIKE 'Microsoft.SemanticKernel%'
    OR attribute_keys LIKE '%"sk.available_functions"%'
'''
version    = "semantic-kernel 1.45 (Python); Microsoft.SemanticKernel 1.0 and later (.NET)"
references = [
    "semantic-kernel 1.45.0, semantic_kernel/utils/telemetry, functions/kernel_function.py, kernel.py",
    "microsoft/semantic-kernel, dotnet/src/InternalUtilities/src/Diagnostics/ModelDiagnostics.cs",
]
+++ */
WITH found AS (
    SELECT trace_id, span_id, parent_span_id, operation_name, tool_name, start_time_unix_nano AS started, error_type, from_json(attributes, '{
        "sk.available_functions": "VARCHAR", "gen_ai.response.finish_reason": "VARCHAR", "gen_ai.tool.definitions": "JSON",
        "gen_ai.tool.call.id": "VARCHAR", "gen_ai.tool.call.arguments": "JSON",
        "gen_ai.response.prompt_tokens": "JSON", "gen_ai.response.completion_tokens": "JSON",
        "messaging.destination": "VARCHAR"
    }') AS a
    FROM candidates
),
-- The span around a model's turns with tools lists their names; their definitions stand on the agent around it.
loops AS (
    SELECT l.trace_id, l.span_id, list_filter(string_split(l.a."sk.available_functions", ','), lambda n: n <> '') AS names,
        list_filter(from_json(tool_definitions(g.a."gen_ai.tool.definitions"), '["JSON"]'), lambda d: list_contains(names, json_extract_string(d, '$.name'))) AS definitions
    FROM found AS l LEFT JOIN found AS g ON g.trace_id = l.trace_id AND g.span_id = l.parent_span_id
    WHERE l.a."sk.available_functions" IS NOT NULL
),
offers AS (
    SELECT trace_id, span_id, CASE WHEN len(definitions) = len(names) THEN to_json(definitions) ELSE tool_definitions(to_json(names)) END AS tools FROM loops
),
-- A prompt that the application runs has the span of a tool, around the model call.
prompts AS (
    SELECT DISTINCT f.trace_id, f.span_id
    FROM found AS f JOIN found AS c ON c.trace_id = f.trace_id AND c.parent_span_id = f.span_id
    WHERE f.operation_name = 'execute_tool' AND f.a."gen_ai.tool.call.id" IS NULL
        AND (c.a."sk.available_functions" IS NOT NULL OR c.operation_name IN ('chat', 'text_completions', 'chat.completions', 'text.completions'))
),
-- Where spans hold no content, a log record of each call may still hold its arguments.
logged AS (
    SELECT trace_id, span_id, tool_name, json_of_text(arguments) AS arguments,
        row_number() OVER (PARTITION BY trace_id, span_id, tool_name ORDER BY logged_at) AS nth, count(*) OVER (PARTITION BY trace_id, span_id, tool_name) AS n
    FROM (
        SELECT trace_id, span_id, coalesce(time_unix_nano, observed_time_unix_nano) AS logged_at, body::JSON ->> '$' AS line,
            regexp_extract(line, '^Calling (\S+) function with args: \{', 1) AS tool_name,
            regexp_extract(line, '^Calling \S+ function with args: (\{.*\})$', 1, 's') AS arguments
        FROM log_in WHERE body LIKE '%Calling %function with args: {%'
    )
    WHERE tool_name <> ''
),
executed AS (
    SELECT trace_id, span_id, parent_span_id, tool_name,
        row_number() OVER same_tool AS nth, count(*) OVER (PARTITION BY trace_id, parent_span_id, tool_name) AS n
    FROM found WHERE operation_name = 'execute_tool'
    WINDOW same_tool AS (PARTITION BY trace_id, parent_span_id, tool_name ORDER BY started, span_id)
),
arguments AS (
    SELECT e.trace_id, e.span_id, l.arguments
    FROM executed AS e
    JOIN logged AS l ON l.trace_id = e.trace_id AND l.span_id = e.parent_span_id AND l.tool_name = e.tool_name AND l.nth = e.nth AND l.n = e.n
),
-- Each turn of an orchestration is a trace of its own; what ties them is its id in the agent's: refunds_ID.(default)-A.
orchestrations AS (
    SELECT m.trace_id, m.span_id, nullif(regexp_extract(m.a."messaging.destination", '_([0-9a-f]{32})\.\(', 1), '') AS id
    FROM found AS m JOIN found AS s ON s.trace_id = m.trace_id AND s.span_id = m.parent_span_id
    WHERE m.operation_name IS NULL AND s.parent_span_id IS NULL
)
SELECT
    f.trace_id, f.span_id, 'semantic_kernel' AS convention,
    CASE WHEN p.span_id IS NOT NULL THEN 'workflow' WHEN operation_name IS NULL THEN 'other' END AS kind,
    t.id AS session_id,
    CASE WHEN operation_name <> 'execute_tool' THEN NULL
        WHEN a."gen_ai.tool.call.arguments" IS NULL THEN r.arguments
        -- The kernel's own parameter, in the calls of an agent that runs as another's tool.
        WHEN a."gen_ai.tool.call.arguments" LIKE '%instructions_override%' AND json_type(decoded(a."gen_ai.tool.call.arguments"), '$.instructions_override') = 'NULL'
        THEN json_merge_patch(decoded(a."gen_ai.tool.call.arguments"), '{"instructions_override": null}') END AS arguments,
    -- A hand-off transfers nothing but the work.
    CASE WHEN tool_name LIKE 'Handoff-%' THEN 'read_only' END AS mutability,
    CASE WHEN tool_name LIKE 'Handoff-%' THEN 'span' END AS mutability_source,
    CASE WHEN operation_name IN ('chat', 'text_completions', 'chat.completions', 'text.completions') THEN o.tools END AS offered_tools,
    -- FinishReason.TOOL_CALLS, one for each choice; ToolCalls in .NET.
    nullif(replace(lower(regexp_extract(a."gen_ai.response.finish_reason", '(\w+)\W*(?:,|$)', 1)), 'toolcalls', 'tool_calls'), 'none') AS finish_reason,
    nullif(regexp_extract(error_type, '^<class ''([\w.]+)''>$', 1), '') AS error_type,
    count_of(a."gen_ai.response.prompt_tokens") AS input_tokens,
    count_of(a."gen_ai.response.completion_tokens") AS output_tokens
FROM found AS f
LEFT JOIN prompts AS p USING (trace_id, span_id)
LEFT JOIN arguments AS r USING (trace_id, span_id)
LEFT JOIN offers AS o ON o.trace_id = f.trace_id AND o.span_id = f.parent_span_id
LEFT JOIN orchestrations AS t ON t.trace_id = f.trace_id AND t.span_id = f.span_id
