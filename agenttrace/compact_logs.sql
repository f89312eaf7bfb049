-- One batch of `incoming_logs` into `log_records`: equal content is stored once, with the time of its first arrival.

CREATE OR REPLACE TEMP TABLE batch AS
SELECT * EXCLUDE (received_at, is_stored), min(received_at) AS received_at
FROM (
    SELECT *, FALSE AS is_stored FROM incoming_logs
    UNION ALL BY NAME
    SELECT *, TRUE AS is_stored FROM log_records WHERE trace_id IN (SELECT trace_id FROM incoming_logs)
)
GROUP BY ALL
HAVING NOT bool_or(is_stored);

INSERT INTO log_records BY NAME
SELECT * FROM batch ORDER BY received_at, trace_id, span_id, time_unix_nano, observed_time_unix_nano, event_name;

INSERT INTO dirty_traces
SELECT DISTINCT trace_id FROM batch ANTI JOIN dirty_traces USING (trace_id);

DROP TABLE batch;
