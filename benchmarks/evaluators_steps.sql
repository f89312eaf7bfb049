-- Steps $first to $last of the benchmark's store, $a_day of them a day: runs of 20 steps, an agent span, eight model
-- calls, eleven tool calls. Every fiftieth run orders the same three times.
INSERT INTO steps BY NAME
SELECT
    'run' || (i // 20) AS trajectory_id, lpad(hex(i // 20), 32, '0') AS trace_id, lpad(hex(i), 16, '0') AS span_id, p AS step_index,
    CASE WHEN p = 0 THEN 'agent' WHEN p <= 8 THEN 'model' ELSE 'tool' END AS kind, 'shop' AS service_name, 'buyer' AS agent_name,
    CASE WHEN p > 8 THEN ['check_stock', 'check_open_orders', 'get_invoice', 'place_order'][1 + p % 4] END AS tool_name,
    CASE WHEN p > 8 THEN 'call_' || i END AS tool_call_id,
    CASE WHEN p > 8 THEN '{"item": "item ' || CASE WHEN (i // 20) % 50 = 0 THEN 1 ELSE i END || '", "qty": 40, "supplier": "Globex"}' END AS arguments,
    CASE WHEN p > 8 THEN '{"po": "PO-' || i || '", "state": "open"}' END AS observation,
    CASE WHEN p > 8 THEN CASE WHEN p % 4 = 3 THEN 'mutating' ELSE 'read_only' END END AS mutability, 'name' AS mutability_source,
    CASE WHEN p > 8 THEN 'yes' END AS effect, 'ok' AS status, 'span' AS origin,
    CASE WHEN p > 8 THEN lpad(hex(i - p + least(p - 8, 7)), 16, '0') END AS turn_span_id,
    CASE WHEN p BETWEEN 1 AND 8 THEN 'gpt-4o' END AS model,
    CASE WHEN p BETWEEN 1 AND 8 THEN 'own' END AS usage_source,
    CASE WHEN p BETWEEN 1 AND 7 THEN 'tool_call' WHEN p = 8 THEN 'stop' END AS finish_reason,
    CASE WHEN p BETWEEN 1 AND 8 THEN 900 END AS input_tokens, CASE WHEN p BETWEEN 1 AND 8 THEN 100 END AS output_tokens,
    CASE WHEN p BETWEEN 1 AND 8 THEN '[{"role": "system", "parts": [{"type": "text", "content": "' || repeat('You buy what a shop lacks and never more than it asks for. ', 5)
        || '"}]}, {"role": "user", "parts": [{"type": "text", "content": "' || repeat('Order rice. ', 30) || '"}]}]' END AS input_messages,
    CASE WHEN p = 8 THEN '[{"role": "assistant", "parts": [{"type": "text", "content": "I placed the order PO-' || i || '."}]}]' WHEN p BETWEEN 1 AND 7 THEN '[]' END AS output_messages,
    CASE WHEN p BETWEEN 1 AND 7 THEN to_json(list_transform(range(p + 8, CASE p WHEN 7 THEN 20 ELSE p + 9 END), lambda q:
        {'id': 'call_' || (i - p + q), 'name': ['check_stock', 'check_open_orders', 'get_invoice', 'place_order'][1 + q % 4], 'arguments': {'item': 'item'}})) WHEN p = 8 THEN '[]' END AS requested_tool_calls,
    CASE WHEN p BETWEEN 1 AND 8 THEN '[{"name": "check_stock", "parameters": {"type": "object"}}, {"name": "check_open_orders"}, {"name": "get_invoice"}, {"name": "place_order"}]' END AS offered_tools,
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_days((i // a_day)::INTEGER) + to_microseconds(i % a_day * 1000000) AS start_time,
    TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_days((i // a_day)::INTEGER) + to_microseconds(i % a_day * 1000000 + 900000) AS end_time
FROM (SELECT i, (i % 20)::INTEGER AS p, $a_day::BIGINT AS a_day FROM range($first::BIGINT, $last::BIGINT) AS r(i))
