/* +++
name       = "outcome"
returns    = "findings"
scope      = "trajectory"
severity   = "error"
question   = "Did the run leave the world as its case asks?"
reads      = ["trajectories", "cases", "outcome_checks"]
limits     = "As good as the expression: one that asks for too little passes what is wrong. Verdicts of checkers, judges and people are no part of it. An expression that fails on the values of one run is not evaluable there, and stops nothing."
references = ["Yao et al., tau-bench, arXiv 2406.12045: judging a run by the state that it leaves"]

[columns]
trajectory_id = "run of the case"
trace_id      = "its trace"
span_id       = "always NULL: the whole run is judged"
kind          = "failed or not_evaluable"
severity      = "error; note for not_evaluable"
message       = "the case, its expression, and the final state, each cut"
case_id       = "benchmark case"
evidence      = "JSON; for not_evaluable the kind concerned"
+++ */
WITH checks AS (
    SELECT
        t.trajectory_id, t.trace_id, k.case_id, k.passed, k.not_evaluable,
        'the outcome of case ' || left(k.case_id, 80) || ' does not hold: ' || regexp_replace(left(c.outcome_sql, 120), '\s+', ' ', 'g')
            || coalesce('; final state ' || left(t.final_state::VARCHAR, 200), '') AS message
    FROM outcome_checks AS k
    JOIN trajectories AS t USING (trajectory_id)
    JOIN cases AS c ON c.case_id = k.case_id
)
SELECT trajectory_id, trace_id, NULL::VARCHAR AS span_id, 'failed' AS kind, 'error' AS severity, message, case_id, NULL::JSON AS evidence
FROM checks
WHERE NOT passed
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', not_evaluable, case_id, json_object('kind', 'failed')
FROM checks
WHERE passed IS NULL
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note', 'no rule for this run: outcome_sql of its benchmark case, [cases] in agenttrace.toml', NULL,
    json_object('kind', 'no_rule')
FROM trajectories
ANTI JOIN outcome_checks USING (trajectory_id)
ORDER BY trajectory_id, kind, message
