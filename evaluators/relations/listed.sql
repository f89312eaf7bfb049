-- A server's last list of tools before a call, where no model call of the run says what was offered.
CREATE OR REPLACE TEMP TABLE listed AS
    SELECT c.trajectory_id, c.trace_id, c.span_id, l.offered_tools
    FROM (
        SELECT s.trajectory_id, s.trace_id, s.span_id, s.service_name, s.start_time
        FROM near_steps AS s
        SEMI JOIN chosen AS c ON c.trajectory_id = s.trajectory_id
        ANTI JOIN (SELECT trajectory_id FROM near_steps WHERE kind = 'model') AS m ON m.trajectory_id = s.trajectory_id
        WHERE s.kind = 'tool' AND s.duplicate_of IS NULL AND s.offered_tools IS NULL
    ) AS c
    ASOF JOIN listings AS l ON c.service_name = l.service_name AND c.start_time >= l.start_time;
