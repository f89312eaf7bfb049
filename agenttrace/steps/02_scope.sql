-- The spans and log records of the traces in `scope`, and the empty table that the conventions fill.
-- Every writer of ours writes strict JSON; a row that another program inserted must not stop the rest.
-- `attribute_keys` has each key in quotes: to look for a few keys in the values too takes ten times as long.
CREATE OR REPLACE TEMP TABLE span_in AS
    SELECT * EXCLUDE (is_valid) REPLACE (
        CASE WHEN is_valid THEN attributes ELSE '{}' END AS attributes,
        CASE WHEN events = '[]' OR json_valid(events) THEN events ELSE '[]' END AS events,
        CASE WHEN resource_attributes = '{}' OR json_valid(resource_attributes) THEN resource_attributes ELSE '{}' END AS resource_attributes),
        CASE WHEN is_valid THEN '"' || array_to_string(json_keys(attributes), '"') || '"' ELSE '' END AS attribute_keys
    FROM (
        SELECT trace_id, span_id, parent_span_id, name, start_time_unix_nano, end_time_unix_nano, status_code, status_message, service_name, scope_name,
            operation_name, openinference_kind, agent_name, tool_name, tool_call_id, model, input_tokens, output_tokens, error_type,
            attributes, CASE WHEN strlen(events) <= getvariable('longest') THEN events ELSE '[]' END AS events, resource_attributes, received_at,
            strlen(attributes) <= getvariable('longest') AND json_valid(attributes) AS is_valid
        FROM spans SEMI JOIN scope USING (trace_id)
        -- No span of these traces is outside, and DuckDB leaves out row groups of other times: variables are constants to the planner.
        WHERE start_time_unix_nano BETWEEN getvariable('batch_earliest') AND getvariable('batch_latest')
    )
    -- Logfire's placeholder of a span that has not ended, in any library's scope; the span itself is sent later.
    WHERE CASE WHEN is_valid AND contains(attributes, 'pending_span') THEN attributes ->> '$."logfire.span_type"' IS DISTINCT FROM 'pending_span' ELSE TRUE END;

-- Spans of different start times may have the same ids, as where a program seeds `random`. Whose children are whose is
-- unknown then, and one row too many here is multiplied by every join that follows: two become billions. So one of them
-- stays, and the others are counted (`read_totals`).
CREATE OR REPLACE TEMP TABLE copies AS
    SELECT trace_id, span_id, arg_min(rowid, (end_time_unix_nano IS NULL, received_at, start_time_unix_nano)) AS kept, count(*) - 1 AS others
    FROM span_in GROUP BY trace_id, span_id HAVING count(*) > 1;

DELETE FROM agenttrace_meta WHERE key IN (SELECT unnest(['id_conflicts ', 'too_large ']) || trace_id FROM scope);
INSERT INTO agenttrace_meta SELECT 'id_conflicts ' || trace_id, sum(others) FROM copies GROUP BY trace_id;

DELETE FROM span_in USING copies
WHERE span_in.trace_id = copies.trace_id AND span_in.span_id = copies.span_id AND span_in.rowid <> copies.kept;

CREATE OR REPLACE TEMP TABLE log_in AS
    SELECT * REPLACE (
        CASE WHEN json_valid(attributes) THEN attributes ELSE '{}' END AS attributes,
        CASE WHEN json_valid(body) THEN body END AS body)
    FROM log_records SEMI JOIN scope USING (trace_id);

CREATE OR REPLACE TEMP TABLE mapped (
    trace_id VARCHAR, span_id VARCHAR, convention VARCHAR,
    -- message: the span was made from a chat transcript, of which each result has a span; where it told no times, they are places in an order.
    -- log: a coding agent's log record.
    origin VARCHAR, is_timed BOOLEAN,
    -- Where they are not the row's own: log records name no parent, and a span may hold more time than the call took.
    parent_span_id VARCHAR, started BIGINT, ended BIGINT,
    -- agent, workflow (an agent where it is the outermost one), model, tool, retrieval, other, drop
    kind VARCHAR,
    name VARCHAR, agent_name VARCHAR, session_id VARCHAR, user_id VARCHAR, tenant_id VARCHAR, task_id VARCHAR, trial INTEGER,
    tool_name VARCHAR, tool_call_id VARCHAR, arguments JSON, arguments_hash VARCHAR, observation JSON, result_failed BOOLEAN,
    mutability VARCHAR, mutability_source VARCHAR, idempotency_key VARCHAR, tool_ran BOOLEAN,
    provider VARCHAR, model VARCHAR, response_id VARCHAR,
    input_messages JSON, output_messages JSON, thought VARCHAR, offered_tools JSON, finish_reason VARCHAR,
    failed BOOLEAN, cancelled BOOLEAN, error_type VARCHAR, error_bases JSON, error_message VARCHAR,
    input_tokens BIGINT, output_tokens BIGINT, cached_input_tokens BIGINT, cache_write_tokens BIGINT, reasoning_tokens BIGINT,
    cost_usd DOUBLE, time_to_first_token_ms DOUBLE,
    user_input VARCHAR, final_response VARCHAR, initial_state JSON, final_state JSON
);

-- Span events and log records in one form. An attribute beats an event, an event beats a log record.
CREATE OR REPLACE TEMP TABLE span_events AS
    SELECT trace_id, span_id, 1 AS source, (e.ord)::BIGINT AS ord, e.name AS event_name, e.attributes AS attributes, NULL::JSON AS body
    FROM (
        SELECT trace_id, span_id,
            unnest(list_transform(
                from_json(events, '[{"name":"VARCHAR","attributes":"JSON"}]'),
                lambda x, i: struct_pack(name := x.name, attributes := x.attributes, ord := i))) AS e
        FROM span_in WHERE events <> '[]'
    )
    UNION ALL
    SELECT trace_id, span_id, 2 AS source,
        row_number() OVER (PARTITION BY trace_id, span_id ORDER BY
            coalesce(time_unix_nano, observed_time_unix_nano),
            -- A coarse clock gives a whole conversation one time.
            list_position(['gen_ai.system.message', 'gen_ai.user.message', 'gen_ai.assistant.message', 'gen_ai.tool.message', 'gen_ai.choice'], event_name),
            body, attributes) AS ord,
        event_name, attributes::JSON AS attributes, body::JSON AS body
    FROM log_in;

-- The last exception of a span.
CREATE OR REPLACE TEMP TABLE span_exceptions AS
    SELECT trace_id, span_id,
        arg_max(attributes ->> '$."exception.type"', ord) AS exception_type,
        arg_max(attributes ->> '$."exception.message"', ord) AS exception_message
    FROM span_events WHERE source = 1 AND event_name = 'exception'
    GROUP BY trace_id, span_id;
