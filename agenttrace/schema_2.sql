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
    is_new BOOLEAN NOT NULL,
    service_name VARCHAR,
    agent_name VARCHAR,
    task_id VARCHAR
);

CREATE TABLE faults (
    run_id VARCHAR NOT NULL,
    fingerprint VARCHAR NOT NULL,
    state VARCHAR,
    quiet_nights INTEGER NOT NULL,
    last_seen DATE NOT NULL,
    evaluator VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    severity VARCHAR NOT NULL,
    service_name VARCHAR,
    agent_name VARCHAR,
    task_id VARCHAR,
    tool_name VARCHAR,
    finding_id VARCHAR NOT NULL,
    trajectory_id VARCHAR,
    message VARCHAR NOT NULL
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
COMMENT ON COLUMN judgements.is_new IS 'FALSE where a night had seen it before more of it arrived';
COMMENT ON COLUMN judgements.service_name IS 'copy of trajectories.service_name';
COMMENT ON COLUMN judgements.agent_name IS 'copy of trajectories.agent_name';
COMMENT ON COLUMN judgements.task_id IS 'copy of trajectories.task_id';

COMMENT ON TABLE faults IS 'What `agenttrace nightly` knew of each fault after a night: one row for each that was not resolved before.';
COMMENT ON COLUMN faults.run_id IS 'evaluation run';
COMMENT ON COLUMN faults.fingerprint IS 'the fault, as in findings';
COMMENT ON COLUMN faults.state IS 'new, known or back: seen in this night; quiet: not seen; resolved: not seen for long enough; withdrawn: more of its runs has arrived, and they do not have it; NULL: seen in the first night';
COMMENT ON COLUMN faults.quiet_nights IS 'nights since it was seen that would have shown it';
COMMENT ON COLUMN faults.last_seen IS 'night in which it was seen last';
COMMENT ON COLUMN faults.evaluator IS 'name of the evaluator';
COMMENT ON COLUMN faults.kind IS 'which rule fired';
COMMENT ON COLUMN faults.severity IS 'error, warning or note';
COMMENT ON COLUMN faults.service_name IS 'service that has it';
COMMENT ON COLUMN faults.agent_name IS 'agent that has it';
COMMENT ON COLUMN faults.task_id IS 'task at which it has it';
COMMENT ON COLUMN faults.tool_name IS 'tool at fault';
COMMENT ON COLUMN faults.finding_id IS 'the worst of its findings when it was seen last';
COMMENT ON COLUMN faults.trajectory_id IS 'run of that finding';
COMMENT ON COLUMN faults.message IS 'what that finding said';

INSERT INTO dirty_traces SELECT DISTINCT trace_id FROM spans;
