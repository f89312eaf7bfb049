-- $days days of $a_day spans before $before (nanoseconds), in traces of ten of which a hundred run at once, and their steps. What they hold is left
-- out: a refresh reads none of it.
INSERT INTO spans BY NAME
SELECT
    md5((i // 1000 * 100 + i % 100)::VARCHAR) AS trace_id, lpad(hex(i), 16, '0') AS span_id, 'chat' AS name, 'internal' AS span_kind,
    $before::BIGINT - ($days * $a_day - i) * (86_400_000_000_000 // $a_day) AS start_time_unix_nano, start_time_unix_nano + 1_000_000 AS end_time_unix_nano,
    'unset' AS status_code, 'benchmark' AS scope_name, 'chat' AS operation_name,
    '{}' AS attributes, '[]' AS events, '[]' AS links, '{}' AS resource_attributes, '{}' AS scope_attributes,
    0 AS dropped_attributes_count, 0 AS dropped_events_count, 0 AS dropped_links_count, 0 AS resource_dropped_attributes_count, 0 AS scope_dropped_attributes_count,
    make_timestamptz(start_time_unix_nano // 1000) AS received_at
FROM (SELECT i FROM range(($days * $a_day)::BIGINT) AS r(i));

INSERT INTO steps BY NAME
SELECT
    left(md5(trace_id), 16) AS trajectory_id, trace_id, span_id, 'model' AS kind, name, 'ok' AS status, 'span' AS origin,
    make_timestamptz(start_time_unix_nano // 1000) AS start_time, make_timestamptz(end_time_unix_nano // 1000) AS end_time, 'chatcmpl-' || left(md5(span_id), 24) AS response_id
FROM spans;

INSERT INTO trajectories BY NAME
SELECT
    trajectory_id, trace_id, [] AS tools, 0 AS tool_call_count, count(*) AS model_call_count, 0 AS error_count, 0 AS mutation_count, 0 AS unpriced_model_calls,
    min(start_time) AS start_time, max(end_time) AS end_time, TRUE AS complete, TRUE AS root_ended, max(end_time) AS last_arrival
FROM steps GROUP BY trajectory_id, trace_id;
