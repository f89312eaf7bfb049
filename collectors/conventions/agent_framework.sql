/* +++
name       = "agent_framework"
extends    = "gen_ai"
rank       = 90
detects    = "scope agent_framework, or scope Microsoft.Agents.AI with its prefixes and suffixes"
where      = "scope_name = 'agent_framework' OR scope_name LIKE '%Microsoft.Agents.AI%'"
version    = "agent-framework-core 1.0 to 1.23; the workflows of Microsoft.Agents.AI"
references = [
    "agent-framework-core 1.0.0 and 1.23.0, agent_framework/observability.py, agent_framework/_tools.py",
    "microsoft/agent-framework, dotnet/src/Microsoft.Agents.AI.Workflows/Observability/ActivityNames.cs",
]
+++ */
WITH found AS (
    SELECT trace_id, span_id, coalesce(parent_span_id, '') AS parent_span_id, name, operation_name,
        start_time_unix_nano AS started, end_time_unix_nano AS ended, from_json(attributes, '{
            "workflow.name": "VARCHAR", "gen_ai.conversation.id": "VARCHAR", "session.id": "VARCHAR", "gen_ai.tool.call.arguments": "JSON"
        }') AS a
    FROM candidates
),
-- Early versions start the span of a streamed agent and do not make it current: its calls stand beside it, within its time.
hollow AS (
    SELECT * FROM found AS f WHERE operation_name = 'invoke_agent'
        AND NOT EXISTS (FROM found AS c WHERE c.trace_id = f.trace_id AND c.parent_span_id = f.span_id)
),
adopted AS (
    SELECT s.trace_id, s.span_id, h.span_id AS agent
    FROM (FROM found WHERE operation_name IN ('chat', 'execute_tool')) AS s
    ASOF JOIN hollow AS h ON h.trace_id = s.trace_id AND h.parent_span_id = s.parent_span_id AND s.started >= h.started
    WHERE s.ended <= h.ended
)
SELECT
    f.trace_id, f.span_id, 'agent_framework' AS convention,
    CASE WHEN operation_name IS NOT NULL THEN NULL
        -- Two agents of one workflow are one run.
        WHEN name IN ('workflow.run', 'workflow_invoke') OR name LIKE 'workflow_invoke %' THEN 'workflow'
        ELSE 'other' END AS kind,
    d.agent AS parent_span_id,
    CASE WHEN operation_name IS NULL THEN a."workflow.name" END AS agent_name,
    CASE WHEN operation_name IS NULL THEN coalesce(a."gen_ai.conversation.id", a."session.id") END AS session_id,
    -- The text of a call without arguments.
    CASE WHEN operation_name = 'execute_tool' AND a."gen_ai.tool.call.arguments" ->> '$' = 'None' THEN '{}'::JSON END AS arguments
FROM found AS f LEFT JOIN adopted AS d USING (trace_id, span_id)
