CREATE OR REPLACE TEMP VIEW steps AS
    SELECT * FROM near_steps SEMI JOIN chosen USING (trajectory_id) WHERE duplicate_of IS NULL;

CREATE OR REPLACE TEMP VIEW trajectories AS
    SELECT * FROM near_trajectories SEMI JOIN chosen USING (trajectory_id);
