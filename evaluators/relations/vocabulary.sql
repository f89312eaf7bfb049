-- Tools by run: those offered, and those requested or called. A run without a recorded offer has none with `offered`.
SELECT trajectory_id, service_name, offered_tools::VARCHAR AS tools, TRUE AS offered
FROM steps
WHERE offered_tools IS NOT NULL
UNION
SELECT trajectory_id, service_name, json_array(json_object('name', tool_name))::VARCHAR, FALSE
FROM steps
WHERE kind = 'tool' AND tool_name IS NOT NULL
ORDER BY trajectory_id, service_name, tools, offered
