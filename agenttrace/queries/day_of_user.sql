-- What did a user's day look like? Every run of a day (UTC), in order.
-- user: the user; without, all
-- day: the day, as in 2026-11-30; without, the last one on which that user did anything

WITH runs AS (
    SELECT *, (start_time AT TIME ZONE 'UTC')::DATE AS day
    FROM trajectories
    WHERE getvariable('user') IS NULL OR user_id = getvariable('user')
)
-- `faults_found` counts what any evaluation has found in the run, whether or not a later one still does.
SELECT
    strftime(start_time AT TIME ZONE 'UTC', '%H:%M:%S') AS time_utc, user_id, session_id, agent_name, user_input, tools,
    final_response, error_count, total_tokens, round(cost_usd, 8) AS cost_usd, unpriced_model_calls, round(duration_ms, 1) AS duration_ms,
    (SELECT count(DISTINCT fingerprint) FROM findings AS f WHERE f.trajectory_id = r.trajectory_id AND f.state IS DISTINCT FROM 'resolved') AS faults_found,
    trajectory_id
FROM runs AS r
WHERE day = coalesce(getvariable('day')::DATE, (SELECT max(day) FROM runs))
ORDER BY start_time, trajectory_id
