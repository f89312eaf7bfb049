-- Traces of segments that an import wrote: they are complete, whatever else arrives for them.

INSERT INTO settled_traces
SELECT DISTINCT trace_id FROM incoming_ids ANTI JOIN settled_traces USING (trace_id);
