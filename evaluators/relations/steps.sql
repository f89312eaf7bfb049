CREATE OR REPLACE TEMP VIEW steps AS
    SELECT * FROM stored_steps SEMI JOIN chosen USING (trajectory_id) WHERE duplicate_of IS NULL;
