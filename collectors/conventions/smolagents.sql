/* +++
name       = "smolagents"
extends    = "openinference"
rank       = 36
detects    = "scope openinference.instrumentation.smolagents"
where      = "scope_name = 'openinference.instrumentation.smolagents'"
version    = "openinference-instrumentation-smolagents 0.1.43, smolagents 1.26"
references = [
    "huggingface/smolagents, src/smolagents/agents.py",
    "openinference-instrumentation-smolagents 0.1.43, openinference/instrumentation/smolagents/_wrappers.py",
]
+++ */
WITH spans_of AS (
    SELECT trace_id, span_id, parent_span_id, name, openinference_kind, attributes, from_json(attributes, '{
        "input.value": "VARCHAR", "output.value": "VARCHAR", "tool.name": "VARCHAR", "tool.parameters": "VARCHAR",
        "smolagents.tools_names": "JSON"
    }') AS a
    FROM candidates
),
found AS (
    SELECT *, json_of_text(a."input.value") AS given, json_of_text(a."tool.parameters") AS parameters FROM spans_of
),
-- A CodeAgent's code called what is no tool: nothing ran, and the step says so. Python's own functions are none either, but no one takes
-- them for tools.
refused AS (
    SELECT f.trace_id, f.span_id, regexp_extract(e.exception_message, 'Forbidden function evaluation: ''(\w+)'' is not among the explicitly allowed tools', 1) AS tool
    FROM found AS f JOIN span_exceptions AS e ON e.trace_id = f.trace_id AND e.span_id = f.span_id
    WHERE f.openinference_kind = 'CHAIN'
        AND tool NOT IN ('', 'open', 'eval', 'exec', 'compile', 'input', 'globals', 'locals', 'vars', 'dir', 'id', 'hash', 'help', 'exit', 'quit', 'breakpoint', 'memoryview', 'super', 'object', '__import__')
),
-- The agents that an agent may call like tools; the model span's own list leaves them out.
teams AS (
    SELECT trace_id, span_id, a."smolagents.tools_names" AS tools, unflatten(attributes, 'smolagents.managed_agents') AS members
    FROM found WHERE openinference_kind = 'AGENT'
),
-- A step lies between an agent and its model call, except where the agent plans.
offers AS (
    SELECT m.trace_id, m.span_id, t.members, tool_definitions(unflatten(m.attributes, 'llm.tools')) AS tools
    FROM found AS m
    LEFT JOIN found AS s ON s.trace_id = m.trace_id AND s.span_id = m.parent_span_id AND s.openinference_kind = 'CHAIN'
    JOIN teams AS t ON t.trace_id = m.trace_id AND t.span_id = coalesce(s.parent_span_id, m.parent_span_id)
    WHERE m.openinference_kind = 'LLM' AND t.members IS NOT NULL
)
SELECT
    f.trace_id, f.span_id, 'smolagents' AS convention,
    -- The framework's own way to answer, no tool of the user's.
    CASE WHEN openinference_kind = 'TOOL' AND a."tool.name" = 'final_answer' THEN 'other' WHEN r.tool IS NOT NULL THEN 'tool' END AS kind,
    r.tool AS tool_name,
    CASE WHEN r.tool IS NOT NULL THEN FALSE END AS tool_ran,
    CASE WHEN openinference_kind = 'AGENT' THEN regexp_replace(name, '\.run$', '') END AS agent_name,
    -- Generated code passes values by position; tool.parameters holds the names in their order.
    CASE WHEN openinference_kind = 'TOOL' AND json_type(parameters) = 'OBJECT' AND json_array_length(given, '$.args') > 0
        THEN call_arguments(json_object('args', given -> '$.args', 'kwargs', given -> '$.kwargs', 'names', json_keys(parameters))) END AS arguments,
    CASE WHEN openinference_kind = 'AGENT' THEN tool_definitions(to_json(list_concat(
            from_json(t.tools, '["JSON"]'), coalesce(from_json(t.members, '["JSON"]'), []))))
        WHEN o.tools IS NOT NULL THEN tool_definitions(to_json(list_concat(from_json(o.tools, '["JSON"]'), from_json(o.members, '["JSON"]')))) END AS offered_tools,
    CASE WHEN openinference_kind = 'AGENT' THEN given ->> '$.task' END AS user_input,
    -- What final_answer got, as text, be it a number.
    CASE WHEN openinference_kind = 'AGENT' THEN captured(a."output.value") END AS final_response
FROM found AS f
LEFT JOIN teams AS t ON t.trace_id = f.trace_id AND t.span_id = f.span_id
LEFT JOIN offers AS o ON o.trace_id = f.trace_id AND o.span_id = f.span_id
LEFT JOIN refused AS r ON r.trace_id = f.trace_id AND r.span_id = f.span_id
