-- Which tools are slow?
-- agent: only calls of this agent

SELECT
    tool_name, count(*) AS calls, count(*) FILTER (WHERE duration_ms IS NULL) AS calls_without_duration,
    round(quantile_cont(duration_ms, 0.5), 3) AS p50_ms, round(quantile_cont(duration_ms, 0.95), 3) AS p95_ms,
    round(max(duration_ms), 3) AS max_ms, round(sum(duration_ms), 3) AS total_ms
FROM steps
WHERE kind = 'tool' AND tool_ran AND duplicate_of IS NULL
    AND (getvariable('agent') IS NULL OR agent_name = getvariable('agent'))
GROUP BY tool_name
ORDER BY p95_ms DESC NULLS LAST, tool_name
