-- Findings that stand: of each run and evaluator, those of the last evaluation that had this run in its window. An
-- evaluation of one evaluator, or of last night's runs only, does not make the other findings go away.
CREATE OR REPLACE TEMP VIEW current_findings AS
    WITH evaluators AS (
        SELECT run_id, started_at, since, until, unnest(json_keys(evaluator_versions)) AS evaluator FROM evaluation_runs
    ),
    last_runs AS (
        SELECT f.trajectory_id, f.evaluator, arg_max(e.run_id, (e.started_at, e.run_id)) AS run_id
        -- Only where something was found: all runs times all nights are too many.
        FROM (SELECT DISTINCT trajectory_id, evaluator FROM findings) AS f
        JOIN trajectories AS t USING (trajectory_id)
        JOIN evaluators AS e USING (evaluator)
        WHERE (e.since IS NULL OR t.start_time >= e.since) AND (e.until IS NULL OR t.start_time < e.until)
        GROUP BY f.trajectory_id, f.evaluator
    )
    SELECT f.* FROM findings AS f JOIN last_runs USING (trajectory_id, evaluator, run_id);
