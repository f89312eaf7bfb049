-- Spans $first to $last of a store that has been written to for a while: tool calls in runs of eight, a millisecond apart.
INSERT INTO spans BY NAME
SELECT
    md5((i // 8)::VARCHAR) AS trace_id, substr(md5('s' || i), 1, 16) AS span_id,
    CASE WHEN i % 8 > 0 THEN substr(md5('s' || (i // 8 * 8)), 1, 16) END AS parent_span_id,
    'execute_tool place_order' AS name, 'internal' AS span_kind,
    1700000000000000000 + i * 1000000 AS start_time_unix_nano, 1700000000000000000 + i * 1000000 + 500000 AS end_time_unix_nano,
    'unset' AS status_code, 'shop' AS service_name, 'agenttrace' AS scope_name, '0.1.0' AS scope_version,
    'execute_tool' AS operation_name, 'place_order' AS tool_name, 'call_' || i AS tool_call_id,
    '{"gen_ai.operation.name":"execute_tool","gen_ai.tool.name":"place_order","gen_ai.tool.call.id":"call_' || i
        || '","gen_ai.tool.call.arguments":"{\"item\":\"rice\",\"qty\":' || (i % 40) || '}"}' AS attributes,
    '[]' AS events, '[]' AS links, '{"service.name":"shop"}' AS resource_attributes, '{}' AS scope_attributes, 256 AS flags,
    0 AS dropped_attributes_count, 0 AS dropped_events_count, 0 AS dropped_links_count,
    0 AS resource_dropped_attributes_count, 0 AS scope_dropped_attributes_count,
    to_timestamp(1700000000 + i // 1000) AS received_at
FROM range($first::BIGINT, $last::BIGINT) AS r(i);
