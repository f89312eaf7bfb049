-- The judged runs in parts of about $most steps: sessions stay whole, and a part is a stretch of time, for rows lie about
-- in the order of time.
WITH runs AS (
    SELECT coalesce(j.session_id, j.trajectory_id) AS session, j.trajectory_id, j.start_time, count(s.trajectory_id) AS steps
    FROM judged AS j
    LEFT JOIN near_steps AS s USING (trajectory_id)
    GROUP BY ALL
),
sessions AS (
    SELECT session, min(start_time) AS first, sum(steps) AS steps, list(trajectory_id ORDER BY trajectory_id) AS runs
    FROM runs
    GROUP BY session
),
placed AS (
    SELECT runs, (sum(steps) OVER (ORDER BY first, session ROWS UNBOUNDED PRECEDING) - steps) // $most AS part
    FROM sessions
)
SELECT flatten(list(runs))
FROM placed
GROUP BY part
ORDER BY part
