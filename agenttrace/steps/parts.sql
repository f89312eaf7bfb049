-- Splits a batch whose spans hold more than `batch_bytes`: a history of messages repeats in each model call.
CREATE OR REPLACE TEMP TABLE parts AS
WITH sizes AS (
    SELECT trace_id, sum(strlen(attributes) + strlen(events)) AS bytes
    FROM spans SEMI JOIN (FROM waiting WHERE batch = getvariable('batch')) USING (trace_id)
    -- Variables are constants to the planner, and let it leave out row groups of other times.
    WHERE start_time_unix_nano BETWEEN getvariable('batch_earliest') AND getvariable('batch_latest')
    GROUP BY trace_id
)
SELECT trace_id, coalesce(sum(bytes) OVER (ORDER BY trace_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) // getvariable('batch_bytes') AS part
FROM sizes;
