-- Requested calls beside the schemas that were offered with them, each different pair once per model call.
SELECT trajectory_id, trace_id, span_id, offered_tools::VARCHAR AS offered_tools, requested_tool_calls::VARCHAR AS requested_tool_calls
FROM steps
WHERE kind = 'model' AND offered_tools IS NOT NULL AND requested_tool_calls IS NOT NULL AND requested_tool_calls::VARCHAR <> '[]'
ORDER BY trajectory_id, span_id
