-- One batch of `incoming_logs` into `log_records`: equal content is stored once, with the time of its first arrival.

-- Equal records have equal times, so only so much of the store is read: variables are constants to the planner, and let
-- it leave out row groups of other times. Either time may be NULL.
SET VARIABLE log_earliest = (SELECT min(time_unix_nano) FROM incoming_logs);
SET VARIABLE log_latest = (SELECT max(time_unix_nano) FROM incoming_logs);
SET VARIABLE observed_earliest = (SELECT min(observed_time_unix_nano) FROM incoming_logs WHERE time_unix_nano IS NULL);
SET VARIABLE observed_latest = (SELECT max(observed_time_unix_nano) FROM incoming_logs WHERE time_unix_nano IS NULL);

CREATE OR REPLACE TEMP TABLE batch AS
SELECT * EXCLUDE (received_at, is_stored), min(received_at) AS received_at
FROM (
    SELECT *, FALSE AS is_stored FROM incoming_logs
    UNION ALL BY NAME
    SELECT *, TRUE AS is_stored FROM log_records
    WHERE trace_id IN (SELECT trace_id FROM incoming_logs)
      AND time_unix_nano BETWEEN getvariable('log_earliest') AND getvariable('log_latest')
    UNION ALL BY NAME
    SELECT *, TRUE AS is_stored FROM log_records
    WHERE trace_id IN (SELECT trace_id FROM incoming_logs WHERE time_unix_nano IS NULL)
      AND time_unix_nano IS NULL
      AND observed_time_unix_nano BETWEEN getvariable('observed_earliest') AND getvariable('observed_latest')
    UNION ALL BY NAME
    SELECT *, TRUE AS is_stored FROM log_records
    WHERE trace_id IN (
        SELECT trace_id FROM incoming_logs WHERE time_unix_nano IS NULL AND observed_time_unix_nano IS NULL
    )
      AND time_unix_nano IS NULL AND observed_time_unix_nano IS NULL
)
GROUP BY ALL
HAVING NOT bool_or(is_stored);

INSERT INTO log_records BY NAME
SELECT * FROM batch ORDER BY received_at, trace_id, span_id, time_unix_nano, observed_time_unix_nano, event_name;

INSERT INTO dirty_traces
SELECT DISTINCT trace_id FROM batch ANTI JOIN dirty_traces USING (trace_id);

DROP TABLE batch;
