-- Joins that find nothing cost more than the scan, so this form is only for stores and configurations that need it.
-- The store knows mutability as of the rebuild; the configuration may have changed since.
CREATE OR REPLACE TEMP VIEW steps AS
    SELECT s.* REPLACE (
        CASE WHEN s.mutability_source IN ('span', 'annotation') THEN s.mutability ELSE coalesce(m.mutability, s.mutability) END AS mutability,
        CASE WHEN m.mutability IS NULL OR s.mutability_source IN ('span', 'annotation') THEN s.mutability_source ELSE 'configuration' END AS mutability_source,
        coalesce(s.offered_tools, l.offered_tools) AS offered_tools)
    FROM near_steps AS s
    SEMI JOIN chosen USING (trajectory_id)
    LEFT JOIN tool_mutability AS m ON m.tool_name = s.tool_name
    LEFT JOIN listed AS l ON l.trace_id = s.trace_id AND l.span_id = s.span_id AND l.trajectory_id = s.trajectory_id
    WHERE s.duplicate_of IS NULL;

CREATE OR REPLACE TEMP TABLE mutation_counts AS
    SELECT trajectory_id, count(*)::INTEGER AS mutation_count
    FROM steps
    WHERE kind = 'tool' AND mutability = 'mutating' AND tool_ran IS DISTINCT FROM FALSE AND effect IS DISTINCT FROM 'no'
    GROUP BY trajectory_id;

CREATE OR REPLACE TEMP VIEW trajectories AS
    SELECT t.* REPLACE (
        CASE WHEN EXISTS (FROM tool_mutability) THEN coalesce(c.mutation_count, 0) ELSE t.mutation_count END AS mutation_count)
    FROM near_trajectories AS t
    SEMI JOIN chosen USING (trajectory_id)
    LEFT JOIN mutation_counts AS c USING (trajectory_id);
