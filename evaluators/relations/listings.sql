-- Replies of tool servers to tools/list, whichever trace they stand in.
CREATE OR REPLACE TEMP TABLE listings AS
    SELECT service_name, start_time, max(offered_tools::VARCHAR)::JSON AS offered_tools
    FROM stored_steps
    WHERE kind NOT IN ('model', 'agent', 'tool') AND offered_tools IS NOT NULL AND duplicate_of IS NULL
    GROUP BY service_name, start_time;
