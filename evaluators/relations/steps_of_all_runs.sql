CREATE OR REPLACE TEMP VIEW steps AS
    SELECT * FROM stored_steps WHERE duplicate_of IS NULL;

CREATE OR REPLACE TEMP VIEW trajectories AS
    SELECT * FROM stored_trajectories;
