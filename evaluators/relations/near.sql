-- The part of the store that may hold the chosen runs, from the first of their steps to the last. Rows lie about in the
-- order of time, and what lies before or after is not read, so that a day costs what a day costs, however long the store
-- has been kept.
SET VARIABLE earliest = (SELECT min(start_time) FROM chosen);
SET VARIABLE latest = greatest(
    (SELECT max(start_time) FROM chosen),
    (SELECT max(start_time) FROM stored_steps SEMI JOIN chosen USING (trajectory_id) WHERE start_time >= getvariable('earliest')));

CREATE OR REPLACE TEMP VIEW near_steps AS
    SELECT * FROM stored_steps WHERE start_time BETWEEN getvariable('earliest') AND getvariable('latest') OR start_time IS NULL;

CREATE OR REPLACE TEMP VIEW near_trajectories AS
    SELECT * FROM stored_trajectories WHERE start_time BETWEEN getvariable('earliest') AND getvariable('latest') OR start_time IS NULL;
