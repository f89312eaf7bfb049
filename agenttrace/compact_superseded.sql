-- Stored spans that records of a batch replace.

DELETE FROM spans USING superseded
WHERE spans.trace_id = superseded.trace_id
  AND spans.span_id = superseded.span_id
  AND spans.start_time_unix_nano BETWEEN $earliest AND $latest;
