-- Calls beside the schemas that they must keep: requested ones beside what was offered with them, executed ones beside
-- what the configuration says of their tools ($definitions, in the form of offered tools).
SELECT trajectory_id, trace_id, span_id, 'offered' AS source, offered_tools::VARCHAR AS tools, requested_tool_calls::VARCHAR AS calls
FROM steps
WHERE kind = 'model' AND offered_tools IS NOT NULL AND requested_tool_calls IS NOT NULL AND requested_tool_calls::VARCHAR <> '[]'
UNION ALL
SELECT
    trajectory_id, trace_id, span_id, 'configured', $definitions::VARCHAR,
    json_array(json_object('id', tool_call_id, 'name', tool_name, 'arguments', arguments))::VARCHAR
FROM steps
WHERE kind = 'tool' AND tool_ran IS DISTINCT FROM FALSE AND list_contains($tools::VARCHAR[], tool_name)
ORDER BY trajectory_id, span_id
