-- Records of a batch that another record of the same span in it beats: ended wins over started, then the first to arrive.
-- `incoming_ids` has the ids and times of its spans, and position: the order of arrival.

SELECT position
FROM incoming_ids
ANTI JOIN (
    SELECT coalesce(min(position) FILTER (WHERE end_time_unix_nano IS NOT NULL), min(position)) AS position
    FROM incoming_ids
    GROUP BY trace_id, span_id
) AS winners USING (position);
