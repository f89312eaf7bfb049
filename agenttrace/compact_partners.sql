-- Records of a batch whose span is in the store already, and whether they replace it: ended wins over started, then the
-- first received. The bounds are constants to the planner, and let it skip what is older or newer than the batch.

SELECT
    incoming_ids.position,
    (incoming_ids.end_time_unix_nano IS NULL, incoming_ids.received_at)
        < (spans.end_time_unix_nano IS NULL, spans.received_at) AS supersedes
FROM spans
JOIN incoming_ids USING (trace_id, span_id)
WHERE spans.start_time_unix_nano BETWEEN $earliest AND $latest;
