-- Table `aged`: each trace with the time of its newest record and what its records take in bytes, about. A clock that is
-- ahead must not keep a trace for ever, and one without a clock (start 0) is as old as its arrival.
CREATE OR REPLACE TEMP TABLE aged AS
SELECT
    trace_id,
    max(CASE WHEN newest_ns > 0 THEN least(make_timestamptz(newest_ns // 1000), received_at) ELSE received_at END) AS newest,
    sum(bytes) AS bytes,
    trace_id IN (SELECT trace_id FROM trajectories WHERE trajectory_id IN (SELECT unnest($labelled::VARCHAR[]))) AS is_labelled
FROM (
    SELECT
        trace_id, greatest(start_time_unix_nano, coalesce(end_time_unix_nano, 0)) AS newest_ns, received_at,
        strlen(attributes) + strlen(events) + strlen(links) + 500 AS bytes
    FROM spans
    UNION ALL
    SELECT
        trace_id, coalesce(time_unix_nano, observed_time_unix_nano, 0) AS newest_ns, received_at,
        coalesce(strlen(body), 0) + strlen(attributes) + 200 AS bytes
    FROM log_records
)
GROUP BY trace_id;
