-- What did each session use? Runs without a session are one row, of which the session is NULL.
-- user: only sessions of this user

SELECT
    session_id, min(user_id) AS user_id, count(*) AS runs, sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
    sum(total_tokens) AS total_tokens, count(*) FILTER (WHERE total_tokens IS NULL) AS runs_without_tokens,
    round(sum(cost_usd), 8) AS cost_usd, sum(unpriced_model_calls) AS unpriced_calls,
    (min(start_time) AT TIME ZONE 'UTC') AS started_utc
FROM trajectories
WHERE getvariable('user') IS NULL OR user_id = getvariable('user')
GROUP BY session_id
ORDER BY total_tokens DESC NULLS LAST, session_id NULLS LAST
