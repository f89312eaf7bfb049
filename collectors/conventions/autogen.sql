/* +++
name       = "autogen"
extends    = "gen_ai"
rank       = 110
detects    = "scope autogen-core, or autogen and the name of a runtime"
where      = "scope_name = 'autogen-core' OR scope_name LIKE 'autogen %'"
version    = "autogen-core 0.6 to 0.7"
references = ["autogen-core 0.7.5, autogen_core/_telemetry", "autogen-agentchat 0.7.5, autogen_agentchat/agents/_base_chat_agent.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, operation_name, attributes ->> '$."gen_ai.agent.id"' AS agent_id, attributes ->> '$."session.id"' AS session_id,
        tool_name LIKE 'transfer\_to\_%' ESCAPE '\' AND starts_with(attributes ->> '$."gen_ai.tool.description"', 'Handoff to ') AS is_handoff
    FROM candidates
)
SELECT
    trace_id, span_id, 'autogen' AS convention,
    -- Messages between the agents of a team.
    CASE WHEN operation_name IS NULL THEN 'other' END AS kind,
    -- Each turn of a team is a trace of its own; what ties them is the team's id in the agent's: refunds_TEAM/TEAM.
    CASE WHEN operation_name = 'invoke_agent' AND session_id IS NULL
        AND ends_with(split_part(agent_id, '/', 1), '_' || nullif(split_part(agent_id, '/', 2), ''))
        THEN split_part(agent_id, '/', 2) END AS session_id,
    -- A hand-off transfers nothing but the work.
    CASE WHEN is_handoff THEN 'read_only' END AS mutability,
    CASE WHEN is_handoff THEN 'span' END AS mutability_source
FROM found
