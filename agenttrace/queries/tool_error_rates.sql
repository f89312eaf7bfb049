-- Which tools fail, and how often?
-- agent: only calls of this agent

SELECT
    tool_name, count(*) AS calls, count(*) FILTER (WHERE status = 'error') AS errors,
    count(*) FILTER (WHERE status = 'timeout') AS timeouts, count(*) FILTER (WHERE status = 'unfinished') AS unfinished,
    round(count(*) FILTER (WHERE status IN ('error', 'timeout')) / count(*), 4) AS error_rate,
    mode(error_type ORDER BY error_type) FILTER (WHERE status IN ('error', 'timeout')) AS usual_error
FROM steps
WHERE kind = 'tool' AND tool_ran AND duplicate_of IS NULL
    AND (getvariable('agent') IS NULL OR agent_name = getvariable('agent'))
GROUP BY tool_name
ORDER BY error_rate DESC, calls DESC, tool_name
