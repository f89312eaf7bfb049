-- Tables `run_places` and `trace_places`: day (UTC) and bucket of each run and trace. Runs of one session are in one place,
-- so that an evaluator may judge each place alone. Buckets come of MD5, which is the same in every engine.
CREATE OR REPLACE TEMP MACRO bucket_of(key) AS (('0x' || left(md5(key), 8))::BIGINT % 16)::INTEGER;

CREATE OR REPLACE TEMP TABLE run_places AS
WITH sessions AS (
    SELECT coalesce(session_id, trajectory_id) AS session, min(start_time) AS start_time FROM trajectories GROUP BY ALL
)
SELECT
    t.trajectory_id, t.trace_id, coalesce(strftime(s.start_time, '%Y-%m-%d'), 'none') AS day, bucket_of(s.session) AS bucket
FROM trajectories AS t
JOIN sessions AS s ON s.session = coalesce(t.session_id, t.trajectory_id);

CREATE OR REPLACE TEMP TABLE trace_places AS
SELECT trace_id, min(day) AS day, arg_min(bucket, (day, bucket)) AS bucket
FROM run_places
GROUP BY trace_id
UNION ALL
-- A trace all of whose steps are repeats of another one's, or log records without their spans.
SELECT trace_id, coalesce(strftime(make_timestamp(min(ns) // 1000), '%Y-%m-%d'), 'none') AS day, bucket_of(trace_id) AS bucket
FROM (
    SELECT trace_id, start_time_unix_nano AS ns FROM spans
    UNION ALL
    SELECT trace_id, coalesce(time_unix_nano, observed_time_unix_nano) AS ns FROM log_records
)
ANTI JOIN run_places USING (trace_id)
GROUP BY trace_id;
