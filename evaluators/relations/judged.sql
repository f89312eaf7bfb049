-- Which runs are judged.
CREATE OR REPLACE TEMP TABLE judged AS
    SELECT trajectory_id, session_id, tenant_id, start_time
    FROM stored_trajectories
    WHERE ($include_open OR complete)
        AND ($since::TIMESTAMPTZ IS NULL OR start_time >= $since::TIMESTAMPTZ)
        AND ($until::TIMESTAMPTZ IS NULL OR start_time < $until::TIMESTAMPTZ)
        AND ($runs::VARCHAR[] IS NULL OR trajectory_id IN (SELECT unnest($runs::VARCHAR[])));
