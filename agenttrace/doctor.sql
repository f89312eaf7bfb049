-- What a store says about the set-up that filled it: one row per fact. `n` of `total` are concerned; `detail` names them.
WITH live AS (
    SELECT * FROM steps WHERE duplicate_of IS NULL
),
models AS (
    SELECT * FROM live WHERE kind = 'model'
),
tools AS (
    SELECT * FROM live WHERE kind = 'tool'
),
-- Spans that no convention reads: HTTP clients and databases are meant to be among them, an agent framework is not.
unmapped AS (
    SELECT coalesce(scope_name, 'no scope') AS scope, trace_id
    FROM spans
    ANTI JOIN (SELECT trace_id, span_id FROM steps WHERE convention IS NOT NULL AND convention <> 'other') AS mapped
        USING (trace_id, span_id)
),
unmapped_scopes AS (
    SELECT scope, count(*) AS n FROM unmapped GROUP BY scope ORDER BY n DESC, scope LIMIT 5
),
asking_runs AS (
    SELECT DISTINCT trajectory_id FROM models WHERE len(requested_tool_calls::VARCHAR) > 2
),
-- Calls without tokens have no price either; they are another fact's.
unpriced AS (
    SELECT coalesce(model, 'no model name') AS model
    FROM models
    WHERE cost_usd IS NULL AND usage_source = 'own' AND coalesce(input_tokens, output_tokens) IS NOT NULL
),
unpriced_models AS (
    SELECT model, count(*) AS n FROM unpriced GROUP BY model ORDER BY n DESC, model LIMIT 5
),
orphans AS (
    SELECT DISTINCT child.trace_id
    FROM spans AS child
    ANTI JOIN spans AS parent ON parent.trace_id = child.trace_id AND parent.span_id = child.parent_span_id
    WHERE child.parent_span_id IS NOT NULL
),
facts AS (
    SELECT 'spans' AS fact, count(*) AS n, count(DISTINCT trace_id) AS total,
        strftime(max(received_at) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S') AS detail
    FROM spans
    UNION ALL
    SELECT 'runs', count(*), NULL, NULL FROM trajectories
    UNION ALL
    SELECT 'not_rebuilt', count(DISTINCT trace_id), NULL, NULL FROM dirty_traces
    UNION ALL
    SELECT 'unmapped', count(*), (SELECT count(*) FROM spans),
        (SELECT string_agg(scope || ' (' || n || ')', ', ' ORDER BY n DESC, scope) FROM unmapped_scopes)
    FROM unmapped
    UNION ALL
    SELECT 'no_model_or_tool', count(*) FILTER (model_call_count = 0 AND tool_call_count = 0), count(*), NULL
    FROM trajectories
    UNION ALL
    SELECT 'no_tool_spans', count(*) FILTER (trajectory_id NOT IN (SELECT trajectory_id FROM tools WHERE NOT contains(span_id, '#'))),
        count(*), NULL
    FROM asking_runs
    UNION ALL
    SELECT 'no_model_calls', count(*) FILTER (model_call_count = 0), count(*), NULL
    FROM trajectories WHERE tool_call_count > 0
    UNION ALL
    SELECT 'no_arguments', count(*) FILTER (arguments IS NULL), count(*), NULL FROM tools
    UNION ALL
    SELECT 'no_observations', count(*) FILTER (observation IS NULL AND status = 'ok'), count(*), NULL FROM tools
    UNION ALL
    SELECT 'no_messages', count(*) FILTER (input_messages IS NULL OR output_messages IS NULL), count(*), NULL FROM models
    UNION ALL
    SELECT 'no_offered_tools', count(*) FILTER (offered_tools IS NULL), count(*), NULL
    FROM models WHERE trajectory_id IN (SELECT trajectory_id FROM asking_runs)
    UNION ALL
    SELECT 'no_usage', count(*) FILTER (input_tokens IS NULL AND output_tokens IS NULL), count(*), NULL FROM models
    UNION ALL
    SELECT 'unpriced', count(*), (SELECT count(*) FROM models),
        (SELECT string_agg(model || ' (' || n || ')', ', ' ORDER BY n DESC, model) FROM unpriced_models)
    FROM unpriced
    UNION ALL
    SELECT 'no_session', count(*) FILTER (session_id IS NULL), count(*), NULL FROM trajectories WHERE mutation_count > 0
    UNION ALL
    SELECT 'open_runs', count(*) FILTER (NOT complete), count(*), NULL FROM trajectories
    UNION ALL
    SELECT 'unfinished_steps', count(*) FILTER (status = 'unfinished'), count(*), NULL FROM live
    UNION ALL
    SELECT 'dropped',
        sum(dropped_attributes_count + dropped_events_count + dropped_links_count + resource_dropped_attributes_count),
        count(*) FILTER (dropped_attributes_count + dropped_events_count + dropped_links_count > 0), NULL
    FROM spans
    UNION ALL
    SELECT 'id_conflicts', sum(value::BIGINT), (SELECT count(*) FROM spans), NULL
    FROM agenttrace_meta WHERE starts_with(key, 'id_conflicts ')
    UNION ALL
    SELECT 'too_large', count(*), (SELECT count(*) FROM trajectories), NULL
    FROM agenttrace_meta WHERE starts_with(key, 'too_large ')
    UNION ALL
    SELECT 'missing_parents', (SELECT count(*) FROM orphans), count(DISTINCT trace_id), NULL FROM spans
    UNION ALL
    SELECT 'evaluations', count(*), NULL, strftime(max(finished_at) AT TIME ZONE 'UTC', '%Y-%m-%d %H:%M:%S')
    FROM evaluation_runs
)
SELECT fact, coalesce(n, 0)::BIGINT AS n, coalesce(total, 0)::BIGINT AS total, detail FROM facts
