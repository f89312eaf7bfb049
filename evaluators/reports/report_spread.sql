-- n, highest value and the marked quantiles of each number that is drawn.
WITH numbers AS (
    SELECT unnest([
        {'metric': 'cost_usd', 'x': CASE WHEN unpriced_model_calls = 0 THEN cost_usd END},
        {'metric': 'latency_ms', 'x': duration_ms},
        {'metric': 'total_tokens', 'x': total_tokens::DOUBLE}
    ], recursive := TRUE)
    FROM trajectories SEMI JOIN reported USING (trajectory_id)
)
SELECT metric, count(x) AS n, max(x) AS highest, quantile_cont(x, 0.5) AS p50, quantile_cont(x, 0.95) AS p95
FROM numbers
WHERE x >= 0
GROUP BY metric
