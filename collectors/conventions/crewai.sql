/* +++
name       = "crewai"
extends    = "gen_ai"
rank       = 170
detects    = "scope crewai or crewai.* keys; scope crewai.telemetry, which is CrewAI's anonymous statistics"
where      = '''
    scope_name IN ('crewai', 'crewai.telemetry') OR attribute_keys LIKE '%"crewai.event_name"%'
    OR (attribute_keys LIKE '%"crewai_version"%' AND operation_name IS NULL AND attribute_keys NOT LIKE '%"gen_ai.%' AND openinference_kind IS NULL)
'''
version    = "crewai 1.15"
references = ["crewai 1.15.30, crewai/telemetry/tracing/handlers.py and crewai/telemetry/telemetry.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, parent_span_id, name, operation_name, scope_name, start_time_unix_nano, from_json(attributes, '{
        "crewai.event_name": "VARCHAR", "crewai.agent.role": "VARCHAR", "crewai.task.description": "VARCHAR",
        "crewai.crew.usage_metrics": "JSON", "crewai.flow.aggregated_crew_usage_metrics": "JSON",
        "crewai.tool.from_cache": "JSON", "crewai_version": "VARCHAR"
    }') AS a
    FROM candidates
),
kinds AS (
    SELECT *, scope_name = 'crewai.telemetry' OR a."crewai_version" IS NOT NULL AS is_statistics,
        coalesce(operation_name = 'execute_tool' AND a."crewai.tool.from_cache" ->> '$' = 'true', FALSE) AS is_cached,
        decoded(coalesce(a."crewai.crew.usage_metrics", a."crewai.flow.aggregated_crew_usage_metrics")) AS usage
    FROM found
),
-- A crew is asked by the descriptions of its tasks.
asked AS (
    SELECT trace_id, parent_span_id AS span_id, arg_min(a."crewai.task.description", (start_time_unix_nano, span_id)) AS user_input
    FROM found WHERE operation_name = 'execute_task' GROUP BY ALL
),
-- An MCP tool has a span of its own inside that of its wrapper, which is named after the server too.
inner_tools AS (
    SELECT i.trace_id, i.span_id FROM found AS i
    JOIN found AS o ON o.trace_id = i.trace_id AND o.span_id = i.parent_span_id
    WHERE i.operation_name = 'execute_tool' AND o.operation_name = 'execute_tool' AND i.name = 'execute mcp tool'
)
SELECT
    k.trace_id, k.span_id, 'crewai' AS convention,
    CASE
        -- A call that failed has a second span, without length.
        WHEN is_statistics OR a."crewai.event_name" = 'tool_failure_detected' THEN 'drop'
        WHEN i.span_id IS NOT NULL THEN 'other' END AS kind,
    -- gen_ai.agent.name is a hash.
    a."crewai.agent.role" AS agent_name,
    -- The result of an earlier call; the tool did not run again.
    CASE WHEN is_cached THEN FALSE END AS tool_ran,
    CASE WHEN is_cached THEN 'read_only' END AS mutability,
    CASE WHEN is_cached THEN 'span' END AS mutability_source,
    CASE WHEN operation_name = 'invoke_workflow' THEN q.user_input END AS user_input,
    CASE WHEN operation_name = 'invoke_workflow' THEN count_of(usage -> '$.prompt_tokens') END AS input_tokens,
    CASE WHEN operation_name = 'invoke_workflow' THEN count_of(usage -> '$.completion_tokens') END AS output_tokens
FROM kinds AS k
LEFT JOIN asked AS q ON q.trace_id = k.trace_id AND q.span_id = k.span_id
LEFT JOIN inner_tools AS i ON i.trace_id = k.trace_id AND i.span_id = k.span_id
