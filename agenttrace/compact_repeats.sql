-- Records of a batch that another record of the same span in it beats: ended wins over started, then the first to arrive.
-- `incoming_ids` has the ids and times of its spans, and position: the order of arrival.

-- A span starts once; what starts at another time under the same ids, as where a program seeds `random`, is another span.
WITH sharing AS (
    SELECT *, lag(start_time_unix_nano) OVER (PARTITION BY trace_id, span_id ORDER BY start_time_unix_nano, position) AS earlier
    FROM incoming_ids
    SEMI JOIN (SELECT trace_id, span_id FROM incoming_ids GROUP BY ALL HAVING count(*) > 1) AS repeated USING (trace_id, span_id)
),
numbered AS (
    SELECT *, count(*) FILTER (
        -- Some producers round to microseconds or milliseconds.
        start_time_unix_nano::HUGEINT - earlier
            >= CASE WHEN start_time_unix_nano % 1_000_000 = 0 OR earlier % 1_000_000 = 0 THEN 1_000_000 ELSE 1_000 END
    ) OVER (PARTITION BY trace_id, span_id ORDER BY start_time_unix_nano, position) AS number
    FROM sharing
)
SELECT position
FROM numbered
ANTI JOIN (
    SELECT coalesce(min(position) FILTER (WHERE end_time_unix_nano IS NOT NULL), min(position)) AS position
    FROM numbered
    GROUP BY trace_id, span_id, number
) AS winners USING (position);
