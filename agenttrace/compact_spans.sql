-- Spans of one batch, each new to the store, in the order of their arrival; `incoming_traces` are theirs.

INSERT INTO spans BY NAME SELECT * FROM incoming_spans;

-- Not EXCEPT, which takes five times as long where many traces wait.
INSERT INTO dirty_traces
SELECT trace_id FROM incoming_traces ANTI JOIN dirty_traces USING (trace_id);
