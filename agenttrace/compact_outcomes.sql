-- One batch of `incoming_outcomes` into `outcomes`: equal content is stored once.

INSERT INTO outcomes BY NAME
SELECT
    task_id, trial::INTEGER AS trial, trajectory_id, source, passed, score, detail,
    make_timestamptz(recorded_at_unix_nano // 1000) AS recorded_at
FROM incoming_outcomes
EXCEPT
SELECT task_id, trial, trajectory_id, source, passed, score, detail, recorded_at FROM outcomes;
