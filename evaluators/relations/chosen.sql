-- The judged runs, and the others that must be known: an earlier run of a session tells what was done before, whether or
-- not it is judged itself.
CREATE OR REPLACE TEMP TABLE chosen AS
    SELECT trajectory_id, start_time FROM judged
    UNION
    SELECT t.trajectory_id, t.start_time
    FROM stored_trajectories AS t
    SEMI JOIN judged AS j ON j.session_id = t.session_id AND j.tenant_id IS NOT DISTINCT FROM t.tenant_id;
