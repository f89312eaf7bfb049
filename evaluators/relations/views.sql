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

-- Verdicts by trajectory, whichever key they came with; of one source the last recorded counts.
CREATE OR REPLACE TEMP VIEW outcomes AS
    WITH verdicts AS (
        SELECT t.trajectory_id, t.task_id, t.trial, o.source, o.passed, o.score, o.detail, o.recorded_at
        FROM stored_outcomes AS o
        JOIN trajectories AS t ON t.trajectory_id = o.trajectory_id
        UNION ALL
        SELECT t.trajectory_id, t.task_id, t.trial, o.source, o.passed, o.score, o.detail, o.recorded_at
        FROM stored_outcomes AS o
        JOIN trajectories AS t ON t.task_id = o.task_id AND t.trial IS NOT DISTINCT FROM o.trial
        WHERE o.trajectory_id IS NULL
    )
    SELECT trajectory_id, task_id, trial, source, arg_max(passed, recorded_at) AS passed,
        arg_max(score, recorded_at) AS score, arg_max(detail, recorded_at) AS detail, max(recorded_at) AS recorded_at
    FROM verdicts
    GROUP BY trajectory_id, task_id, trial, source;
