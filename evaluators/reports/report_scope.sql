-- The runs that were judged: those of a list, else those in the evaluation's window that have ended.
CREATE OR REPLACE TEMP TABLE reported AS
    SELECT trajectory_id
    FROM trajectories
    WHERE CASE WHEN $runs::VARCHAR[] IS NULL
        THEN complete
            AND ($since::TIMESTAMPTZ IS NULL OR start_time >= $since::TIMESTAMPTZ)
            AND ($until::TIMESTAMPTZ IS NULL OR start_time < $until::TIMESTAMPTZ)
        ELSE trajectory_id IN (SELECT unnest($runs::VARCHAR[])) END
