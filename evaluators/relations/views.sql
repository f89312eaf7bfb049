-- What evaluators read beside `steps`. Columns that a query leaves out cost nothing, so these are views, not copies.

CREATE OR REPLACE TEMP TABLE mutation_counts AS
    SELECT trajectory_id, count(*)::INTEGER AS mutation_count
    FROM steps
    WHERE EXISTS (FROM tool_mutability)
        AND kind = 'tool' AND mutability = 'mutating' AND tool_ran IS DISTINCT FROM FALSE AND effect IS DISTINCT FROM 'no'
    GROUP BY trajectory_id;

CREATE OR REPLACE TEMP VIEW trajectories AS
    SELECT t.* REPLACE (
        CASE WHEN EXISTS (FROM tool_mutability) THEN coalesce(c.mutation_count, 0) ELSE t.mutation_count END AS mutation_count)
    FROM stored_trajectories AS t
    SEMI JOIN chosen USING (trajectory_id)
    LEFT JOIN mutation_counts AS c USING (trajectory_id);

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
        JOIN stored_steps AS s ON s.kind = 'agent' AND left(md5(s.trace_id || s.span_id), 16) = o.trajectory_id
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
