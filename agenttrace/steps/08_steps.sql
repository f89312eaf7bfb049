-- All rows of `steps` for the traces in scope. `priced` holds the computed costs, made outside of SQL.

-- What a run states once holds for all of its steps: the outermost agent's word first, else the earliest of any step.
CREATE OR REPLACE TEMP TABLE identities AS
    SELECT trajectory_id,
        arg_min(session_id, (span_id IS DISTINCT FROM trajectory_agent, started, span_id)) AS session_id,
        arg_min(user_id, (span_id IS DISTINCT FROM trajectory_agent, started, span_id)) AS user_id,
        arg_min(tenant_id, (span_id IS DISTINCT FROM trajectory_agent, started, span_id)) AS tenant_id,
        arg_min(task_id, (span_id IS DISTINCT FROM trajectory_agent, started, span_id)) AS task_id,
        arg_min(trial, (span_id IS DISTINCT FROM trajectory_agent, started, span_id)) AS trial
    FROM places GROUP BY trajectory_id;

-- Parallel calls of one turn keep the order in which the model requested them; all else goes by start.
CREATE OR REPLACE TEMP TABLE ordered AS
WITH events AS (
    SELECT trajectory_id, trace_id, span_id, turn_span_id, pos, started, ended FROM tool_calls
    UNION ALL
    SELECT trajectory_id, trace_id, span_id, NULL, NULL, started, ended FROM turns
),
clusters AS (
    SELECT *,
        CASE WHEN turn_span_id IS NULL OR started >= max(ended) OVER (
            PARTITION BY trajectory_id, trace_id, turn_span_id ORDER BY started, pos, span_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            THEN 1 ELSE 0 END AS begins
    FROM events
),
numbered AS (
    SELECT *, sum(begins) OVER (PARTITION BY trajectory_id, trace_id, turn_span_id ORDER BY started, pos, span_id) AS cluster FROM clusters
),
grouped AS (
    SELECT *, CASE WHEN turn_span_id IS NULL THEN started
        ELSE min(started) OVER (PARTITION BY trajectory_id, trace_id, turn_span_id, cluster) END AS sort_time
    FROM numbered
)
SELECT g.trace_id, g.span_id,
    row_number() OVER (PARTITION BY g.trajectory_id ORDER BY g.sort_time, g.pos NULLS FIRST, g.started, w.depth, g.span_id) - 1 AS step_index
FROM grouped AS g LEFT JOIN walk AS w USING (trace_id, span_id);

CREATE OR REPLACE TEMP TABLE new_steps AS
WITH output_parts AS (
    SELECT trace_id, span_id, written_parts(output_messages) AS parts FROM merged WHERE output_messages IS NOT NULL AND kind = 'model'
),
outputs AS (
    SELECT trace_id, span_id,
        to_json(list_transform(list_filter(parts, lambda p: p.type = 'tool_call'), lambda p:
            json_object('id', p.id, 'name', p.name, 'arguments', p.arguments))) AS requested,
        len(list_filter(parts, lambda p: p.type = 'tool_call')) AS request_count,
        parts_text(parts, 'reasoning') AS reasoning, parts_text(parts, 'text') AS text
    FROM output_parts
),
-- Materialised: the planner would try all orders of a dozen joins.
placed AS MATERIALIZED (
    SELECT p.trajectory_id, p.trace_id, p.span_id, p.kind, p.agent_name, p.started, p.ended, p.trajectory_agent, p.below_tool, d.duplicate_of, o.step_index,
        u.input_tokens, u.output_tokens, u.cached_input_tokens, u.cache_write_tokens, u.reasoning_tokens, u.usage_source,
        u.cost_usd AS stated_cost_usd, c.cost_usd AS computed_cost_usd, i.session_id, i.user_id, i.tenant_id, i.task_id, i.trial
    FROM places AS p
    JOIN identities AS i USING (trajectory_id)
    LEFT JOIN duplicates AS d USING (trace_id, span_id)
    LEFT JOIN ordered AS o USING (trace_id, span_id)
    LEFT JOIN counted AS u USING (trace_id, span_id)
    LEFT JOIN priced AS c USING (trace_id, span_id)
)
SELECT
    p.trajectory_id, p.trace_id, p.span_id, coalesce(m.parent_span_id, s.parent_span_id) AS parent_span_id, p.step_index::INTEGER AS step_index, p.kind,
    coalesce(m.name, s.name) AS name, s.service_name, p.agent_name,
    CASE WHEN p.kind = 'tool' THEN coalesce(t.tool_name, m.tool_name) END AS tool_name,
    coalesce(t.tool_call_id, m.tool_call_id) AS tool_call_id,
    CASE WHEN p.duplicate_of IS NULL THEN t.arguments ELSE m.arguments END AS arguments,
    CASE WHEN p.kind = 'tool' THEN m.arguments_hash END AS arguments_hash,
    CASE WHEN p.duplicate_of IS NULL THEN t.observation ELSE m.observation END AS observation,
    t.mutability, t.mutability_source, m.idempotency_key, t.tool_ran, t.effect, t.effect_reason,
    lower(CASE WHEN p.kind IN ('model', 'retrieval') THEN m.provider END) AS provider,
    CASE WHEN p.kind IN ('model', 'retrieval') THEN nullif(m.model, 'unknown') END AS model,
    m.input_messages, m.output_messages,
    CASE WHEN p.kind = 'model' THEN coalesce(m.thought, x.reasoning, CASE WHEN x.request_count > 0 THEN x.text END) ELSE m.thought END AS thought,
    CASE WHEN p.kind = 'model' THEN x.requested END AS requested_tool_calls,
    coalesce(q.offered_tools, m.offered_tools) AS offered_tools,
    CASE WHEN m.finish_reason IN ('tool_calls', 'tool-calls', 'tool_use', 'function_call') THEN 'tool_call' WHEN m.finish_reason = 'end_turn' THEN 'stop'
        ELSE nullif(lower(m.finish_reason), '') END AS finish_reason,
    coalesce(t.status, CASE
        WHEN p.ended IS NULL THEN 'unfinished'
        WHEN coalesce(m.cancelled, FALSE) OR (m.failed AND is_cancelled(m.error_type)) THEN 'cancelled'
        WHEN coalesce(m.failed, s.status_code = 'error') THEN CASE WHEN is_timeout(m.error_type, m.error_message) THEN 'timeout' ELSE 'error' END
        ELSE 'ok' END) AS status,
    CASE WHEN t.span_id IS NOT NULL THEN t.error_type WHEN coalesce(m.failed, s.status_code = 'error') THEN m.error_type END AS error_type,
    CASE WHEN t.span_id IS NOT NULL THEN t.error_message WHEN coalesce(m.failed, s.status_code = 'error') THEN coalesce(m.error_message, s.status_message) END AS error_message,
    CASE WHEN t.span_id IS NOT NULL THEN t.error_source WHEN coalesce(m.failed, s.status_code = 'error') THEN 'span' END AS error_source,
    p.input_tokens, p.output_tokens, p.cached_input_tokens, p.cache_write_tokens, p.reasoning_tokens,
    CASE WHEN p.input_tokens IS NOT NULL OR p.output_tokens IS NOT NULL THEN p.usage_source END AS usage_source,
    coalesce(p.stated_cost_usd, p.computed_cost_usd) AS cost_usd,
    CASE WHEN p.stated_cost_usd IS NOT NULL THEN 'stated' WHEN p.computed_cost_usd IS NOT NULL THEN 'computed' END AS cost_source,
    p.started, p.ended, m.time_to_first_token_ms, m.convention, coalesce(m.origin, 'span') AS origin, m.is_timed, p.duplicate_of,
    CASE WHEN p.kind = 'model' THEN m.response_id END AS response_id, t.turn_span_id,
    m.user_input, m.final_response, m.initial_state, m.final_state, x.text AS output_text, x.request_count, p.trajectory_agent, p.below_tool, s.received_at,
    p.session_id, p.user_id, p.tenant_id, p.task_id, p.trial,
    CASE WHEN m.is_timed IS DISTINCT FROM FALSE THEN utc_time(p.started) END AS start_time,
    CASE WHEN m.is_timed IS DISTINCT FROM FALSE THEN utc_time(p.ended) END AS end_time,
    -- A clock that was set back in between has measured nothing.
    CASE WHEN coalesce(m.origin, 'span') IN ('span', 'log') AND p.ended >= p.started THEN (p.ended::HUGEINT - p.started) / 1e6 END AS duration_ms
FROM placed AS p
JOIN span_in AS s USING (trace_id, span_id)
LEFT JOIN merged AS m USING (trace_id, span_id)
LEFT JOIN tool_calls AS t USING (trace_id, span_id)
LEFT JOIN turns AS q USING (trace_id, span_id)
LEFT JOIN outputs AS x USING (trace_id, span_id);

-- if EXISTS (FROM tool_calls ANTI JOIN span_in USING (trace_id, span_id))
INSERT INTO new_steps BY NAME
    SELECT t.trajectory_id, t.trace_id, t.span_id, t.turn_span_id AS parent_span_id, o.step_index::INTEGER AS step_index, 'tool' AS kind, t.tool_name AS name,
        f.service_name, f.agent_name, t.tool_name, t.tool_call_id, t.arguments, t.observation, t.mutability, t.mutability_source, t.tool_ran, t.effect, t.effect_reason,
        t.status, t.error_type, t.error_message, t.error_source, t.started, t.ended, utc_time(t.started) AS start_time, utc_time(t.ended) AS end_time,
        f.convention, 'message' AS origin, t.turn_span_id, f.trajectory_agent, f.below_tool, f.received_at, f.session_id, f.user_id, f.tenant_id, f.task_id, f.trial
    FROM tool_calls AS t
    JOIN new_steps AS f ON f.trace_id = t.trace_id AND f.span_id = t.turn_span_id
    LEFT JOIN ordered AS o ON o.trace_id = t.trace_id AND o.span_id = t.span_id
    ANTI JOIN span_in AS s ON s.trace_id = t.trace_id AND s.span_id = t.span_id;
-- end if
