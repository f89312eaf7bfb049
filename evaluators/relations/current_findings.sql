-- Findings that stand: of each run and evaluator, those of the last evaluation that judged this run. An evaluation of one
-- evaluator, or of last night's runs only, does not make the other findings go away.
CREATE OR REPLACE TEMP VIEW current_findings AS
    WITH evaluators AS (
        SELECT run_id, started_at, since, until, night, unnest(json_keys(evaluator_versions)) AS evaluator FROM evaluation_runs
    ),
    -- Only where something was found: all runs times all evaluations are too many.
    faulty AS (
        SELECT DISTINCT trajectory_id, evaluator FROM findings WHERE state IS DISTINCT FROM 'resolved'
    ),
    judged AS (
        SELECT f.trajectory_id, f.evaluator, e.run_id, e.started_at
        FROM faulty AS f
        JOIN trajectories AS t USING (trajectory_id)
        JOIN evaluators AS e ON e.evaluator = f.evaluator AND e.night IS NULL
        WHERE (e.since IS NULL OR t.start_time >= e.since) AND (e.until IS NULL OR t.start_time < e.until)
        UNION ALL
        -- A night judged the runs of its ledger.
        SELECT f.trajectory_id, f.evaluator, e.run_id, e.started_at
        FROM faulty AS f
        JOIN judgements AS j ON j.trajectory_id = f.trajectory_id AND j.judged
        JOIN evaluators AS e ON e.run_id = j.run_id AND e.evaluator = f.evaluator
        SEMI JOIN trajectories AS t ON t.trajectory_id = f.trajectory_id
    ),
    last_runs AS (
        SELECT trajectory_id, evaluator, arg_max(run_id, (started_at, run_id)) AS run_id FROM judged GROUP BY ALL
    )
    SELECT f.* FROM findings AS f JOIN last_runs USING (trajectory_id, evaluator, run_id) WHERE f.state IS DISTINCT FROM 'resolved';
