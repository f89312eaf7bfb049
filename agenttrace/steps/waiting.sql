-- Which traces are rebuilt together, the next $batches times: $spans spans in the order of their times, so that a batch
-- reads one stretch of the wide columns. A trace is rebuilt whole, however far apart its spans are: that takes two
-- narrow columns of all spans.
CREATE OR REPLACE TEMP TABLE waiting AS
WITH traces AS (
    SELECT trace_id, count(*) AS spans, min(start_time_unix_nano) AS earliest, max(start_time_unix_nano) AS latest
    FROM spans SEMI JOIN dirty_traces USING (trace_id)
    GROUP BY trace_id
)
SELECT trace_id, earliest, latest,
    (coalesce(sum(spans) OVER (ORDER BY earliest, trace_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) // $spans)::BIGINT AS batch
FROM traces
QUALIFY batch < $batches;
