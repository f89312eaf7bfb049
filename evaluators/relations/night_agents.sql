-- Agents that ran in each of the last $nights nights before $night that judged anything, with their runs per night; those
-- that have a run which has not ended do run.
WITH last AS (
    SELECT DISTINCT night FROM evaluation_runs WHERE night < $night::DATE AND trajectories > 0 ORDER BY night DESC LIMIT $nights
)
SELECT j.service_name, j.agent_name, count(DISTINCT j.trajectory_id) / $nights AS runs
FROM judgements AS j
JOIN evaluation_runs AS e USING (run_id)
JOIN last USING (night)
ANTI JOIN (SELECT service_name, agent_name FROM trajectories WHERE NOT complete) AS o
    ON o.service_name IS NOT DISTINCT FROM j.service_name AND o.agent_name IS NOT DISTINCT FROM j.agent_name
WHERE j.is_new
GROUP BY j.service_name, j.agent_name
HAVING count(DISTINCT e.night) = $nights
ORDER BY runs DESC, j.service_name, j.agent_name
