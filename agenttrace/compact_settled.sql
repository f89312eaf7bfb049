-- Traces of segments that an import wrote: they are complete, whatever else arrives for them.

INSERT INTO settled_traces
SELECT trace_id FROM incoming_spans
EXCEPT
SELECT trace_id FROM settled_traces;
