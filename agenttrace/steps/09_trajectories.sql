-- One row per run of an agent. A trace of which no step was an agent's, a model's or a tool's is none.
-- What the user asked stands in the first model call; the agent's own input is the last resort, for it may hold a whole history.
CREATE OR REPLACE TEMP VIEW inputs AS
    SELECT trajectory_id, input_messages, (kind <> 'model', step_index) AS place FROM new_steps
    WHERE input_messages IS NOT NULL AND ((kind = 'model' AND duplicate_of IS NULL) OR span_id = trajectory_agent);
CREATE OR REPLACE TEMP TABLE first_inputs AS
    SELECT trajectory_id, user_text(arg_min(input_messages, place)) AS user_input FROM inputs GROUP BY trajectory_id;

-- if EXISTS (FROM first_inputs WHERE user_input IS NULL)
UPDATE first_inputs SET user_input = later.user_input
FROM (
    SELECT trajectory_id, arg_min(user_text(input_messages), place) AS user_input
    FROM inputs SEMI JOIN (FROM first_inputs WHERE user_input IS NULL) USING (trajectory_id) GROUP BY trajectory_id
) AS later
WHERE first_inputs.trajectory_id = later.trajectory_id;
-- end if

-- The last text of the agent itself: neither of an agent that ran as its tool, nor one that came with further requests.
CREATE OR REPLACE TEMP TABLE last_outputs AS
    SELECT trajectory_id, arg_max(CASE WHEN request_count = 0 THEN output_text END, (NOT below_tool, step_index)) AS final_response,
        arg_max(request_count, (NOT below_tool, step_index)) AS open_requests
    FROM new_steps
    WHERE kind = 'model' AND duplicate_of IS NULL AND request_count IS NOT NULL
    GROUP BY trajectory_id;

CREATE OR REPLACE TEMP TABLE agent_outputs AS
    SELECT n.trajectory_id, any_value(n.agent_name) AS agent_name, any_value(n.user_input) AS user_input,
        any_value(coalesce(n.final_response, parts_text(from_json(n.output_messages, '[{"parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]')[-1].parts, 'text'))) AS final_response,
        any_value(n.initial_state) AS initial_state, any_value(n.final_state) AS final_state
    FROM new_steps AS n WHERE n.span_id = n.trajectory_agent
    GROUP BY n.trajectory_id;

CREATE OR REPLACE TEMP TABLE roots AS
    -- No log record says that a run has ended.
    SELECT p.trajectory_id, bool_and(p.ended IS NOT NULL AND m.origin IS DISTINCT FROM 'log') AS root_ended
    FROM places AS p JOIN nodes AS n USING (trace_id, span_id) LEFT JOIN merged AS m USING (trace_id, span_id)
    WHERE CASE WHEN p.trajectory_agent IS NULL THEN n.parent_span_id IS NULL ELSE p.span_id = p.trajectory_agent END
    GROUP BY p.trajectory_id;

CREATE OR REPLACE TEMP TABLE totals AS
    SELECT trajectory_id, sum(input_tokens) FILTER (WHERE counts)::BIGINT AS input_tokens, sum(output_tokens) FILTER (WHERE counts)::BIGINT AS output_tokens
    FROM counted GROUP BY trajectory_id;

-- Duplicates count: a record that arrives changes its run, whatever the rebuild makes of it.
CREATE OR REPLACE TEMP TABLE arrivals AS
    WITH records AS (
        SELECT trajectory_id, received_at FROM new_steps
        UNION ALL
        SELECT r.trajectory_id, l.received_at FROM log_in AS l JOIN (SELECT DISTINCT trajectory_id, trace_id FROM new_steps) AS r USING (trace_id)
    )
    SELECT trajectory_id, max(received_at) AS last_arrival, (sum(epoch_us(received_at)) % (2::HUGEINT ** 61 - 1))::BIGINT AS revision
    FROM records GROUP BY trajectory_id;

CREATE OR REPLACE TEMP TABLE new_trajectories AS
WITH live AS (
    SELECT n.*, coalesce(c.counts, FALSE) AS counts FROM new_steps AS n LEFT JOIN counted AS c USING (trace_id, span_id)
    WHERE n.duplicate_of IS NULL
)
SELECT
    l.trajectory_id, min(l.trace_id) AS trace_id, min(l.session_id) AS session_id, min(l.user_id) AS user_id, min(l.tenant_id) AS tenant_id,
    arg_min(l.service_name, (l.span_id IS DISTINCT FROM l.trajectory_agent, l.started, l.span_id)) AS service_name,
    coalesce(min(a.agent_name), arg_min(l.agent_name, (l.started, l.span_id))) AS agent_name,
    min(l.task_id) AS task_id, min(l.trial) AS trial,
    coalesce(any_value(a.user_input), any_value(i.user_input)) AS user_input,
    coalesce(any_value(a.final_response), any_value(CASE WHEN o.open_requests = 0 THEN o.final_response END)) AS final_response,
    coalesce(list(l.tool_name ORDER BY l.step_index) FILTER (WHERE l.kind = 'tool' AND l.tool_ran), []) AS tools,
    count(*) FILTER (WHERE l.kind = 'tool' AND l.tool_ran)::INTEGER AS tool_call_count,
    count(*) FILTER (WHERE l.kind = 'model')::INTEGER AS model_call_count,
    count(*) FILTER (WHERE l.kind IN ('tool', 'model') AND l.status IN ('error', 'timeout'))::INTEGER AS error_count,
    count(*) FILTER (WHERE l.kind = 'tool' AND l.tool_ran AND l.mutability = 'mutating' AND l.effect <> 'no')::INTEGER AS mutation_count,
    any_value(t.input_tokens) AS input_tokens, any_value(t.output_tokens) AS output_tokens,
    any_value(CASE WHEN t.input_tokens IS NOT NULL OR t.output_tokens IS NOT NULL THEN coalesce(t.input_tokens, 0) + coalesce(t.output_tokens, 0) END) AS total_tokens,
    -- Doubles would sum to another last digit in another order.
    (sum(l.cost_usd::DECIMAL(38, 18)) FILTER (WHERE l.kind = 'model' OR l.counts))::DOUBLE AS cost_usd,
    -- Where the agent states the cost of the whole run, calls without usage of their own are part of it.
    CASE WHEN bool_or(l.counts AND l.kind NOT IN ('model', 'retrieval') AND l.cost_usd IS NOT NULL)
        THEN count(*) FILTER (WHERE l.kind = 'model' AND l.cost_usd IS NULL AND (l.input_tokens IS NOT NULL OR l.output_tokens IS NOT NULL))
        ELSE count(*) FILTER (WHERE l.kind = 'model' AND l.cost_usd IS NULL) END::INTEGER AS unpriced_model_calls,
    min(l.start_time) AS start_time, max(l.end_time) AS end_time,
    -- A clock that was set back leaves an end before the start: how long it took is not known.
    CASE WHEN max(l.ended) >= min(l.started) AND min(l.start_time) IS NOT NULL THEN (max(l.ended)::HUGEINT - min(l.started)) / 1e6 END AS duration_ms,
    coalesce(bool_or(r.root_ended), FALSE)
        OR bool_or(l.trace_id IN (SELECT trace_id FROM settled_traces))
        OR any_value(v.last_arrival) < getvariable('settled_before') AS complete,
    any_value(a.initial_state) AS initial_state, any_value(a.final_state) AS final_state,
    any_value(v.last_arrival) AS last_arrival, coalesce(bool_or(r.root_ended), FALSE) AS root_ended, any_value(v.revision) AS revision
FROM live AS l
LEFT JOIN agent_outputs AS a USING (trajectory_id)
LEFT JOIN first_inputs AS i USING (trajectory_id)
LEFT JOIN last_outputs AS o USING (trajectory_id)
LEFT JOIN roots AS r USING (trajectory_id)
LEFT JOIN totals AS t USING (trajectory_id)
LEFT JOIN arrivals AS v USING (trajectory_id)
GROUP BY l.trajectory_id
HAVING bool_or(l.kind IN ('agent', 'model', 'tool', 'retrieval'));
