-- From version 1 of a store to version 2: the ledger of nights. All runs are rebuilt, for their revisions.

ALTER TABLE trajectories ADD COLUMN revision BIGINT DEFAULT 0;
ALTER TABLE trajectories ALTER COLUMN revision SET NOT NULL;

ALTER TABLE evaluation_runs ADD COLUMN night DATE;
ALTER TABLE evaluation_runs ADD COLUMN details JSON;

CREATE TABLE judgements (
    run_id VARCHAR NOT NULL,
    trajectory_id VARCHAR NOT NULL,
    revision BIGINT NOT NULL,
    judged BOOLEAN NOT NULL,
    service_name VARCHAR,
    agent_name VARCHAR,
    task_id VARCHAR
);

COMMENT ON COLUMN trajectories.revision IS 'number that changes when a record of the run arrives or is replaced: the sum of their arrivals in microseconds, modulo 2^61 - 1';
COMMENT ON COLUMN findings.state IS 'new, known or back: seen in this night, compared with those before; resolved: last seen in an earlier one, and the run is that of then; NULL for other evaluations';
COMMENT ON COLUMN evaluation_runs.night IS 'night that `agenttrace nightly` judged, by the date on which it begins; NULL for other evaluations';
COMMENT ON COLUMN evaluation_runs.details IS 'JSON object: gate and cases as in `evaluate --format json`, and what the report of a night says beside';
COMMENT ON TABLE judgements IS 'Ledger of `agenttrace nightly`: which runs a night has seen, as they were then. With evaluation_runs.evaluator_versions it says which evaluator has judged which run.';
COMMENT ON COLUMN judgements.run_id IS 'evaluation run';
COMMENT ON COLUMN judgements.trajectory_id IS 'run of the agent';
COMMENT ON COLUMN judgements.revision IS 'its revision then; a later one is judged again';
COMMENT ON COLUMN judgements.judged IS 'FALSE where it was not in the sample';
COMMENT ON COLUMN judgements.service_name IS 'copy of trajectories.service_name';
COMMENT ON COLUMN judgements.agent_name IS 'copy of trajectories.agent_name';
COMMENT ON COLUMN judgements.task_id IS 'copy of trajectories.task_id';

INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM spans;
