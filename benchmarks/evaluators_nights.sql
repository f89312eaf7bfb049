-- A night for each day but the last: its evaluation, its ledger, and a finding in one run of forty.
CREATE TEMP TABLE judged AS
    SELECT *, start_time::DATE AS night FROM trajectories WHERE start_time::DATE < (SELECT max(start_time)::DATE FROM trajectories);

INSERT INTO evaluation_runs BY NAME
SELECT 'night ' || night AS run_id, night::TIMESTAMPTZ AS started_at, night::TIMESTAMPTZ AS finished_at, count(*) AS trajectories,
    FALSE AS passed, 'c' AS config_hash, '{"budget_overruns": "v"}' AS evaluator_versions, night, '{}' AS details
FROM judged GROUP BY night ORDER BY night;

INSERT INTO judgements BY NAME
SELECT 'night ' || night AS run_id, trajectory_id, revision, TRUE AS judged, TRUE AS is_new, service_name, agent_name, task_id
FROM judged ORDER BY night, trajectory_id;

INSERT INTO faults BY NAME
SELECT 'night ' || night AS run_id, md5(coalesce(task_id, '')) AS fingerprint, 'known' AS state, 0 AS quiet_nights, night AS last_seen,
    'budget_overruns' AS evaluator, 'max_tool_calls' AS kind, 'error' AS severity, 'shop' AS service_name, 'buyer' AS agent_name, task_id,
    min(md5(trajectory_id)) AS finding_id, min(trajectory_id) AS trajectory_id, '12 tool calls, the budget is 11' AS message
FROM judged WHERE tool_call_count > 11 GROUP BY night, task_id ORDER BY night, task_id;

INSERT INTO findings BY NAME
SELECT md5(trajectory_id) AS finding_id, md5(coalesce(task_id, '')) AS fingerprint, 'night ' || night AS run_id, 'budget_overruns' AS evaluator,
    'max_tool_calls' AS kind, 'error' AS severity, 'known' AS state, trajectory_id, [] AS related_span_ids, '12 tool calls, the budget is 11' AS message,
    '{}' AS evidence
FROM judged WHERE tool_call_count > 11 ORDER BY night, trajectory_id;
