-- Evaluations of a night that judged anything, the newest first; with another time zone it is another night.
SELECT run_id, epoch_us(started_at), epoch_us(finished_at), trajectories, passed, config_hash, evaluator_versions, details
FROM evaluation_runs
WHERE night = $night::DATE AND trajectories > 0 AND details ->> '$.night.timezone' = $timezone
ORDER BY started_at DESC, run_id
