-- One batch of `incoming_evaluation`, a row per evaluation with JSON text in each column, into the result tables.
-- JSON columns may come as objects or as text that holds one.

CREATE OR REPLACE TEMP MACRO json_of(value) AS CASE json_type(value) WHEN 'VARCHAR' THEN (value ->> '$')::JSON ELSE value END;

CREATE OR REPLACE TEMP TABLE batch AS
SELECT * FROM incoming_evaluation
WHERE run ->> '$.run_id' NOT IN (SELECT run_id FROM evaluation_runs)
-- A copied segment, as of a spool that was restored, is the same evaluation.
QUALIFY row_number() OVER (PARTITION BY run ->> '$.run_id' ORDER BY received_at) = 1;

INSERT INTO evaluation_runs BY NAME
SELECT run.* REPLACE (json_of(run.evaluator_versions) AS evaluator_versions, json_of(run.details) AS details)
FROM (
    SELECT from_json_strict(run, '{
        "run_id": "VARCHAR", "label": "VARCHAR", "started_at": "TIMESTAMPTZ", "finished_at": "TIMESTAMPTZ",
        "since": "TIMESTAMPTZ", "until": "TIMESTAMPTZ", "trajectories": "BIGINT", "passed": "BOOLEAN",
        "config_hash": "VARCHAR", "evaluator_versions": "JSON", "night": "DATE", "details": "JSON"
    }') AS run
    FROM batch
);

INSERT INTO findings BY NAME
SELECT finding.* REPLACE (json_of(finding.evidence) AS evidence)
FROM (
    SELECT unnest(from_json_strict(findings, '[{
        "finding_id": "VARCHAR", "fingerprint": "VARCHAR", "run_id": "VARCHAR", "evaluator": "VARCHAR",
        "kind": "VARCHAR", "severity": "VARCHAR", "state": "VARCHAR", "trajectory_id": "VARCHAR",
        "trace_id": "VARCHAR", "span_id": "VARCHAR", "related_span_ids": ["VARCHAR"], "tool_name": "VARCHAR",
        "message": "VARCHAR", "evidence": "JSON"
    }]')) AS finding
    FROM batch
);

INSERT INTO measurements BY NAME
SELECT measurement.* REPLACE (json_of(measurement.dimensions) AS dimensions)
FROM (
    SELECT unnest(from_json_strict(measurements, '[{
        "run_id": "VARCHAR", "metric": "VARCHAR", "dimensions": "JSON", "value": "DOUBLE", "unit": "VARCHAR",
        "n": "BIGINT", "n_not_evaluable": "BIGINT", "low": "DOUBLE", "high": "DOUBLE"
    }]')) AS measurement
    FROM batch
);

INSERT INTO not_evaluable BY NAME
SELECT reason.*
FROM (
    SELECT unnest(from_json_strict(not_evaluable, '[{
        "run_id": "VARCHAR", "evaluator": "VARCHAR", "kind": "VARCHAR", "trajectory_id": "VARCHAR",
        "reason": "VARCHAR"
    }]')) AS reason
    FROM batch
);

-- Of a night also which runs it has seen; an evaluation of another kind has none.
INSERT INTO judgements BY NAME
SELECT j.run_id, j.trajectory_id, j.revision, j.judged, j.is_new, t.service_name, t.agent_name, t.task_id
FROM (
    SELECT run ->> '$.run_id' AS run_id, unnest(seen.trajectory_ids) AS trajectory_id, unnest(seen.revisions) AS revision,
        unnest(seen.judged) AS judged, unnest(seen.is_new) AS is_new
    FROM (
        SELECT run, from_json_strict(judgements, '{
            "trajectory_ids": ["VARCHAR"], "revisions": ["BIGINT"], "judged": ["BOOLEAN"], "is_new": ["BOOLEAN"]
        }') AS seen
        FROM batch
    )
) AS j
LEFT JOIN trajectories AS t USING (trajectory_id);

INSERT INTO faults BY NAME
SELECT fault.*
FROM (
    SELECT unnest(from_json_strict(faults, '[{
        "run_id": "VARCHAR", "fingerprint": "VARCHAR", "state": "VARCHAR", "quiet_nights": "INTEGER", "last_seen": "DATE",
        "evaluator": "VARCHAR", "kind": "VARCHAR", "severity": "VARCHAR", "service_name": "VARCHAR", "agent_name": "VARCHAR",
        "task_id": "VARCHAR", "tool_name": "VARCHAR", "finding_id": "VARCHAR", "trajectory_id": "VARCHAR", "message": "VARCHAR"
    }]')) AS fault
    FROM batch
);

-- A run that has been judged again has no other verdicts of earlier nights: they were of a part of it, or by an older
-- version of the evaluator. A night in which nothing could be judged is replaced by one of the same date.
CREATE OR REPLACE TEMP TABLE outdated AS
SELECT DISTINCT old.run_id, old_run.trajectory_id, e.evaluator
FROM (
    SELECT run_id, started_at, unnest(json_keys(evaluator_versions)) AS evaluator
    FROM evaluation_runs SEMI JOIN (SELECT run ->> '$.run_id' AS run_id FROM batch) USING (run_id)
) AS e
JOIN judgements AS new_run ON new_run.run_id = e.run_id AND new_run.judged
JOIN judgements AS old_run ON old_run.trajectory_id = new_run.trajectory_id AND old_run.judged AND old_run.run_id <> e.run_id
JOIN evaluation_runs AS old ON old.run_id = old_run.run_id AND old.started_at < e.started_at;

DELETE FROM findings USING outdated AS o
WHERE findings.run_id = o.run_id AND findings.trajectory_id = o.trajectory_id AND findings.evaluator = o.evaluator
    AND state IS DISTINCT FROM 'resolved';

DELETE FROM not_evaluable USING outdated AS o
WHERE not_evaluable.run_id = o.run_id AND not_evaluable.trajectory_id = o.trajectory_id AND not_evaluable.evaluator = o.evaluator;

DELETE FROM evaluation_runs USING (SELECT run_id, night FROM evaluation_runs SEMI JOIN (SELECT run ->> '$.run_id' AS run_id FROM batch) USING (run_id)) AS n
WHERE evaluation_runs.night = n.night AND evaluation_runs.trajectories = 0 AND evaluation_runs.run_id <> n.run_id;

DROP TABLE outdated;
DROP TABLE batch;
