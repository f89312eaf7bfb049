-- Verdicts by trajectory, whichever key they came with; of one source the last recorded counts, of several recorded at
-- once (rows of one file) one that failed.
CREATE OR REPLACE TEMP VIEW outcomes AS
    WITH verdicts AS (
        SELECT t.trajectory_id, t.task_id, t.trial, o.source, o.passed, o.score, o.detail, o.recorded_at
        FROM stored_outcomes AS o
        JOIN trajectories AS t ON t.trajectory_id = o.trajectory_id
        UNION ALL
        -- A run says its id by its own outermost agent; one that arrived above it later gives the trajectory another.
        SELECT t.trajectory_id, t.task_id, t.trial, o.source, o.passed, o.score, o.detail, o.recorded_at
        FROM stored_outcomes AS o
        JOIN near_steps AS s ON s.kind = 'agent' AND left(md5(s.trace_id || s.span_id), 16) = o.trajectory_id
        JOIN trajectories AS t ON t.trajectory_id = s.trajectory_id
        UNION ALL
        SELECT t.trajectory_id, t.task_id, t.trial, o.source, o.passed, o.score, o.detail, o.recorded_at
        FROM stored_outcomes AS o
        JOIN trajectories AS t ON t.task_id = o.task_id AND t.trial IS NOT DISTINCT FROM o.trial
        WHERE o.trajectory_id IS NULL
    ),
    latest AS (
        SELECT trajectory_id, task_id, trial, source,
            max({'recorded_at': recorded_at, 'failed': passed IS FALSE, 'passed': passed, 'score': score, 'detail': detail}) AS verdict
        FROM verdicts
        GROUP BY trajectory_id, task_id, trial, source
    )
    SELECT trajectory_id, task_id, trial, source, verdict.passed, verdict.score, verdict.detail, verdict.recorded_at
    FROM latest;
