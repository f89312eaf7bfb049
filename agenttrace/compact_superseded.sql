-- Rows of the store that records of a batch replace.

DELETE FROM spans USING superseded
WHERE spans.rowid = superseded.stored
  AND spans.start_time_unix_nano BETWEEN $earliest AND $latest;
