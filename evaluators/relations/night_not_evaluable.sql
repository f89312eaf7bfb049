-- What an evaluation could not judge; the columns of `NotEvaluable`.
SELECT evaluator, kind, trajectory_id, reason
FROM not_evaluable
WHERE run_id = $run_id
ORDER BY evaluator, kind, reason, trajectory_id
