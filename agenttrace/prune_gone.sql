-- Table `gone`: the traces that end before $before. A session goes as a whole, for half of one gives other verdicts; the
-- runs that a label covers stay, for a comparison judges them again.
CREATE OR REPLACE TEMP TABLE gone AS
WITH RECURSIVE kept AS (
    SELECT trace_id FROM aged WHERE newest >= $before OR is_labelled
    UNION
    SELECT other.trace_id
    FROM kept
    JOIN trajectories AS own ON own.trace_id = kept.trace_id
    JOIN trajectories AS other ON other.session_id = own.session_id
)
SELECT trace_id, bytes, newest FROM aged ANTI JOIN kept USING (trace_id);
