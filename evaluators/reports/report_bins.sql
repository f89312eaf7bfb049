-- Runs per bin of one number; the last bin also takes what lies beyond the axis.
WITH numbers AS (
    SELECT CASE $metric
        WHEN 'cost_usd' THEN CASE WHEN unpriced_model_calls = 0 THEN cost_usd END
        WHEN 'latency_ms' THEN duration_ms
        ELSE total_tokens::DOUBLE
    END AS x
    FROM trajectories SEMI JOIN reported USING (trajectory_id)
)
SELECT
    least(floor(x / $upper * $bins), $bins - 1)::INTEGER AS bin, count(*) AS n, count(*) FILTER (x > $upper) AS beyond
FROM numbers
WHERE x >= 0
GROUP BY bin
ORDER BY bin
