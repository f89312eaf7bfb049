/* +++
name       = "tool_sequence"
returns    = "findings"
scope      = "trajectory"
severity   = "error"
question   = "Did a run make the tool calls that one of its case's accepted sequences asks for?"
reads      = ["sequence_matches", "trajectories"]
limits     = "A call of which no model turn is known stands alone, so a run recorded without its model calls fails an accepted group of parallel calls in mode exact. A path that is as good as the accepted ones and is not among them is a finding. Calls are compared by what was asked for, not by what they did: a call that failed counts. A call that was requested and left no trace beside others that did is not missed. Where the calls of a run times those of a sequence are more than 1,000,000, they are not compared: not evaluable, unless the run matches another accepted sequence."
references = ["design.md, sections 5 and 7", "langchain-ai/agentevals, trajectory match", "Wagner and Fischer, The string-to-string correction problem, 1974"]

[params.numeric_tolerance]
type    = "DOUBLE"
default = 0.0
help    = "Numbers in arguments that differ by no more are equal."

[columns]
trajectory_id     = "run that matches none of its accepted sequences"
trace_id          = "its trace"
span_id           = "first call that differs from the nearest sequence; NULL where calls are only missing"
kind              = "mode of comparison (exact, any_order, in_order, subset or superset), or not_evaluable"
severity          = "error; note for not_evaluable"
message           = "the calls, and the fewest edits that lead to the nearest accepted sequence"
related_span_ids  = "the other calls that differ"
precision         = "ratio 0 to 1: calls of the run that have a partner in the nearest sequence, whatever the order"
recall            = "ratio 0 to 1: calls of the nearest sequence that have a partner in the run"
f1                = "ratio 0 to 1: their harmonic mean"
sequence_index    = "position of the nearest sequence in acceptable_tool_sequences, from 0"
numeric_tolerance = "largest difference of equal numbers"
evidence          = "JSON; for not_evaluable the kind concerned"
+++ */
WITH nearest AS (
    SELECT
        trajectory_id, mode, accepted, sequence_index, precision, recall, f1, edits, differing_span_ids, not_evaluable,
        count(*) OVER (PARTITION BY trajectory_id) AS sequences
    FROM sequence_matches
    QUALIFY closest
)
SELECT
    n.trajectory_id, t.trace_id, n.differing_span_ids[1] AS span_id, n.mode AS kind, 'error' AS severity,
    format('the run called {}, which matches none of {:d} accepted sequence{} ({}); nearest is number {:d}: {}',
        coalesce(nullif(left(array_to_string(t.tools, ', '), 200), ''), 'no tool'), n.sequences,
        CASE WHEN n.sequences = 1 THEN '' ELSE 's' END, n.mode, n.sequence_index + 1, n.edits) AS message,
    n.differing_span_ids[2:] AS related_span_ids,
    n.precision AS precision, n.recall AS recall, n.f1 AS f1, n.sequence_index AS sequence_index,
    $numeric_tolerance::DOUBLE AS numeric_tolerance, NULL::JSON AS evidence
FROM nearest AS n
JOIN trajectories AS t USING (trajectory_id)
WHERE NOT n.accepted
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note', not_evaluable, [], NULL, NULL, NULL, NULL, NULL,
    json_object('kind', mode)
FROM nearest
WHERE not_evaluable IS NOT NULL
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note',
    'no rule for this run: its task_id is the case_id of no case with acceptable_tool_sequences ([cases] in agenttrace.toml)',
    [], NULL, NULL, NULL, NULL, NULL, json_object('kind', 'no_rule')
FROM trajectories
ANTI JOIN sequence_matches USING (trajectory_id)
ORDER BY trajectory_id, kind, message
