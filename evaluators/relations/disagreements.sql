-- Runs on which the channels disagree and no human has decided, newest first: checker against judge, or either of them
-- having passed what evaluators found an error in.
WITH verdicts AS (
    SELECT
        trajectory_id,
        any_value({'passed': passed, 'score': score, 'detail': left(detail, 200)}) FILTER (WHERE source = 'checker') AS checker,
        any_value({'passed': passed, 'score': score, 'detail': left(detail, 200)}) FILTER (WHERE source = 'judge') AS judge
    FROM outcomes
    GROUP BY trajectory_id
    HAVING NOT bool_or(source = 'human' AND passed IS NOT NULL)
),
errors AS (
    SELECT trajectory_id, count(*) AS errors FROM current_findings WHERE severity = 'error' GROUP BY trajectory_id
)
SELECT
    t.trajectory_id, t.start_time AT TIME ZONE 'UTC' AS start_time, coalesce(t.agent_name, t.service_name) AS agent,
    t.task_id, t.trial, v.checker, v.judge, coalesce(e.errors, 0) AS errors
FROM verdicts AS v
JOIN trajectories AS t USING (trajectory_id)
LEFT JOIN errors AS e USING (trajectory_id)
WHERE v.checker.passed <> v.judge.passed OR (e.errors > 0 AND (v.checker.passed OR v.judge.passed))
ORDER BY t.start_time DESC NULLS LAST, t.trajectory_id
