-- Replaces the traces in scope. Findings of a trajectory that is no more go with it.
CREATE OR REPLACE TEMP TABLE superseded (trajectory_id VARCHAR);
CREATE OR REPLACE TEMP TABLE built AS SELECT DISTINCT trace_id FROM steps SEMI JOIN scope USING (trace_id);

-- if EXISTS (FROM built)
INSERT INTO superseded
    SELECT trajectory_id FROM trajectories SEMI JOIN built USING (trace_id)
    EXCEPT SELECT trajectory_id FROM new_trajectories;

DELETE FROM steps WHERE trace_id IN (SELECT trace_id FROM built);
DELETE FROM trajectories WHERE trace_id IN (SELECT trace_id FROM built);
-- end if

INSERT INTO steps BY NAME
    SELECT trajectory_id, trace_id, span_id, parent_span_id, step_index, kind, name, service_name, agent_name, session_id, user_id, tenant_id, task_id, trial,
        tool_name, tool_call_id, arguments, arguments_hash, observation, mutability, idempotency_key, tool_ran, effect,
        provider, model, input_messages, output_messages, thought, requested_tool_calls, offered_tools, finish_reason,
        status, error_type, error_message, error_source,
        input_tokens, output_tokens, cached_input_tokens, cache_write_tokens, reasoning_tokens, usage_source, cost_usd, cost_source,
        start_time, end_time, duration_ms, time_to_first_token_ms, convention, origin, duplicate_of,
        response_id, mutability_source, turn_span_id, effect_reason
    FROM new_steps;

INSERT INTO trajectories BY NAME SELECT * FROM new_trajectories;

-- if EXISTS (FROM new_steps WHERE kind = 'model' AND response_id IS NOT NULL)
-- One model call recorded in two traces: an SDK's own instrumentation that began a trace of its own. That trace, which holds nothing but
-- model calls, is a duplicate of the other, and no trajectory. Another scope at the same time, for test servers give every response one id.
-- No model call takes a day, so only the days around are read.
SET VARIABLE day_before = (SELECT min(start_time) - INTERVAL 1 DAY FROM new_steps WHERE kind = 'model');
SET VARIABLE day_after = (SELECT max(start_time) + INTERVAL 1 DAY FROM new_steps WHERE kind = 'model');

CREATE OR REPLACE TEMP TABLE elsewhere AS
WITH responses AS (
    SELECT response_id FROM steps
    SEMI JOIN (FROM new_steps WHERE kind = 'model' AND response_id IS NOT NULL) AS n USING (response_id)
    WHERE kind = 'model' AND start_time BETWEEN getvariable('day_before') AND getvariable('day_after')
    GROUP BY response_id HAVING min(trace_id) <> max(trace_id)
),
found AS (
    SELECT trace_id, span_id, response_id, start_time, end_time FROM steps SEMI JOIN responses USING (response_id)
    WHERE kind = 'model' AND (duplicate_of IS NULL OR duplicate_of LIKE '%@%') AND start_time BETWEEN getvariable('day_before') AND getvariable('day_after')
),
traces AS (
    SELECT trace_id, bool_and(kind IN ('model', 'other')) AS only_models
    FROM steps SEMI JOIN found USING (trace_id) GROUP BY trace_id
),
calls AS (
    SELECT f.*, t.only_models, coalesce(s.scope_name, '') AS scope
    FROM found AS f JOIN traces AS t USING (trace_id) JOIN spans AS s ON s.trace_id = f.trace_id AND s.span_id = f.span_id
),
scopes AS (
    SELECT DISTINCT response_id, scope FROM calls
),
others AS (
    SELECT c.*, s.scope AS other_scope FROM calls AS c JOIN scopes AS s ON s.response_id = c.response_id AND s.scope <> c.scope
),
starts AS (
    SELECT response_id, scope, start_time, min_by(struct_pack(trace_id, span_id, end_time, only_models), (trace_id, span_id)) AS call
    FROM calls SEMI JOIN others USING (response_id) GROUP BY ALL
),
pairs AS (
    SELECT b.trace_id AS later_trace, b.span_id AS later, b.only_models AS later_only_models,
        a.call.trace_id AS earlier_trace, a.call.span_id AS earlier, a.call.only_models AS earlier_only_models
    FROM others AS b
    ASOF JOIN starts AS a ON a.response_id = b.response_id AND a.scope = b.other_scope AND b.start_time >= a.start_time
    WHERE a.call.trace_id <> b.trace_id AND coalesce(a.call.end_time >= b.start_time, TRUE)
)
SELECT trace_id, span_id, min(duplicate_of) AS duplicate_of
FROM (
    SELECT later_trace AS trace_id, later AS span_id, earlier || '@' || earlier_trace AS duplicate_of FROM pairs WHERE later_only_models
    UNION ALL
    SELECT earlier_trace, earlier, later || '@' || later_trace FROM pairs WHERE earlier_only_models AND NOT later_only_models
)
GROUP BY trace_id, span_id;

UPDATE steps SET duplicate_of = e.duplicate_of, step_index = NULL, usage_source = CASE WHEN usage_source IS NOT NULL THEN 'duplicate' END
    FROM elsewhere AS e WHERE steps.trace_id = e.trace_id AND steps.span_id = e.span_id;

INSERT INTO superseded
    SELECT trajectory_id FROM trajectories SEMI JOIN elsewhere USING (trace_id)
    ANTI JOIN (FROM steps SEMI JOIN elsewhere USING (trace_id) WHERE kind IN ('agent', 'model', 'tool', 'retrieval') AND duplicate_of IS NULL) AS s
        USING (trajectory_id);
-- end if

-- if EXISTS (FROM superseded)
DELETE FROM trajectories WHERE trajectory_id IN (SELECT trajectory_id FROM superseded);
DELETE FROM findings WHERE trajectory_id IN (SELECT trajectory_id FROM superseded);
DELETE FROM not_evaluable WHERE trajectory_id IN (SELECT trajectory_id FROM superseded);
-- end if

DELETE FROM dirty_traces WHERE trace_id IN (SELECT trace_id FROM scope);
