-- Agents that ran in each of the last $nights nights before $night that judged anything, with their runs per night.
WITH last AS (
    SELECT DISTINCT night FROM evaluation_runs WHERE night < $night::DATE AND trajectories > 0 ORDER BY night DESC LIMIT $nights
)
SELECT j.service_name, j.agent_name, count(DISTINCT j.trajectory_id) / $nights AS runs
FROM judgements AS j
JOIN evaluation_runs AS e USING (run_id)
JOIN last USING (night)
GROUP BY j.service_name, j.agent_name
HAVING count(DISTINCT e.night) = $nights
ORDER BY runs DESC, j.service_name, j.agent_name
