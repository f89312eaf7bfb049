-- Records of a batch whose span is in the store already, its row there, and whether they replace it: ended wins over
-- started, then the first received. The bounds are constants to the planner, and let it skip what is older or newer than
-- the batch.

SELECT
    incoming_ids.position, spans.rowid AS stored,
    (incoming_ids.end_time_unix_nano IS NULL, incoming_ids.received_at)
        < (spans.end_time_unix_nano IS NULL, spans.received_at) AS supersedes
FROM spans
-- Also by time, or a hundred thousand spans under the same ids would be compared with each other.
JOIN (
    SELECT *, unnest([-1, 0, 1]) + start_time_unix_nano // 1_000_000 AS millisecond FROM incoming_ids
) AS incoming_ids
    ON incoming_ids.trace_id = spans.trace_id
    AND incoming_ids.span_id = spans.span_id
    AND incoming_ids.millisecond = spans.start_time_unix_nano // 1_000_000
WHERE spans.start_time_unix_nano BETWEEN $earliest AND $latest
  -- As in compact_repeats.sql: another start is another span.
  AND abs(spans.start_time_unix_nano::HUGEINT - incoming_ids.start_time_unix_nano) < CASE
      WHEN spans.start_time_unix_nano % 1_000_000 = 0 OR incoming_ids.start_time_unix_nano % 1_000_000 = 0 THEN 1_000_000
      ELSE 1_000
  END;
