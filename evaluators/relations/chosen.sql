CREATE OR REPLACE TEMP TABLE chosen AS
    SELECT trajectory_id FROM judged
    UNION
    SELECT t.trajectory_id
    FROM stored_trajectories AS t
    SEMI JOIN judged AS j ON j.session_id = t.session_id AND j.tenant_id IS NOT DISTINCT FROM t.tenant_id;
