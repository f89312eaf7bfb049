-- The part of the store that may hold the chosen runs. A run begins with the first of its steps, and rows lie about in the
-- order of time: what lies before is not read, so that a day costs what a day costs, however long the store has been kept.
SET VARIABLE earliest = (SELECT min(start_time) FROM chosen);

CREATE OR REPLACE TEMP VIEW near_steps AS
    SELECT * FROM stored_steps WHERE start_time >= getvariable('earliest') OR start_time IS NULL;

CREATE OR REPLACE TEMP VIEW near_trajectories AS
    SELECT * FROM stored_trajectories WHERE start_time >= getvariable('earliest') OR start_time IS NULL;
