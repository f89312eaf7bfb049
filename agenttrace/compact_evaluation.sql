-- One batch of `incoming_evaluation`, a row per evaluation with JSON text in each column, into the four result tables.
-- JSON columns may come as objects or as text that holds one.

CREATE OR REPLACE TEMP MACRO json_of(value) AS CASE json_type(value) WHEN 'VARCHAR' THEN (value ->> '$')::JSON ELSE value END;

CREATE OR REPLACE TEMP TABLE batch AS
SELECT * FROM incoming_evaluation
WHERE run ->> '$.run_id' NOT IN (SELECT run_id FROM evaluation_runs)
-- A copied segment, as of a spool that was restored, is the same evaluation.
QUALIFY row_number() OVER (PARTITION BY run ->> '$.run_id' ORDER BY received_at) = 1;

INSERT INTO evaluation_runs BY NAME
SELECT run.* REPLACE (json_of(run.evaluator_versions) AS evaluator_versions)
FROM (
    SELECT from_json_strict(run, '{
        "run_id": "VARCHAR", "label": "VARCHAR", "started_at": "TIMESTAMPTZ", "finished_at": "TIMESTAMPTZ",
        "since": "TIMESTAMPTZ", "until": "TIMESTAMPTZ", "trajectories": "BIGINT", "passed": "BOOLEAN",
        "config_hash": "VARCHAR", "evaluator_versions": "JSON"
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

DROP TABLE batch;
