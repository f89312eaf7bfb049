/* +++
name       = "haystack_openinference"
extends    = "openinference"
rank       = 37
detects    = "scope openinference.instrumentation.haystack"
where      = "scope_name = 'openinference.instrumentation.haystack'"
version    = "openinference-instrumentation-haystack 0.1.46, haystack-ai 2.31 and 3.4"
references = ["openinference-instrumentation-haystack 0.1.46, openinference/instrumentation/haystack/_wrappers.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, openinference_kind, from_json(attributes, '{"input.value": "VARCHAR", "output.value": "VARCHAR"}') AS a
    FROM candidates
),
kinds AS (
    SELECT *, CASE
        WHEN regexp_matches(name, '^\w*Pipeline\.run') THEN 'workflow'
        WHEN regexp_matches(name, '^\w*Agent\.run') AND openinference_kind = 'CHAIN' THEN 'agent'
        WHEN openinference_kind = 'LLM' THEN 'model' END AS kind,
        json_of_text(a."input.value") AS given, json_of_text(a."output.value") AS got
    FROM found
),
-- Messages and tools are lists of Python reprs. The flattened messages leave out calls, their ids and results, and there is no span per tool.
listed AS (
    SELECT trace_id, span_id, kind,
        list_transform(from_json(given -> '$.messages', '["VARCHAR"]'), lambda m: json_of_repr(m)) AS asked,
        list_transform(from_json(coalesce(got -> '$.replies', got -> '$.messages'), '["VARCHAR"]'), lambda m: json_of_repr(m)) AS answered,
        list_filter(list_transform(from_json(given -> '$.tools', '["VARCHAR"]'), lambda t: json_of_repr(t)), lambda t: t IS NOT NULL) AS tools
    FROM kinds WHERE kind IN ('model', 'agent') AND json_type(given) = 'OBJECT'
),
contents AS (
    SELECT trace_id, span_id, tools,
        CASE WHEN list_position(asked, NULL) IS NULL THEN messages(to_json(asked)) END AS asked,
        CASE WHEN list_position(answered, NULL) IS NULL THEN messages(to_json(answered)) END AS answered,
        answered[1] -> '$._meta' AS meta
    FROM listed
)
SELECT
    k.trace_id, k.span_id, 'haystack_openinference' AS convention, kind,
    CASE WHEN kind = 'model' THEN asked END AS input_messages,
    CASE WHEN kind = 'model' THEN answered END AS output_messages,
    CASE WHEN kind = 'model' AND len(tools) > 0 THEN tool_definitions(to_json(tools)) END AS offered_tools,
    CASE WHEN kind = 'model' THEN meta ->> '$.finish_reason' END AS finish_reason,
    CASE WHEN kind = 'model' THEN count_of(meta -> '$.usage.prompt_tokens_details.cached_tokens') END AS cached_input_tokens,
    CASE WHEN kind = 'agent' THEN parts_text(list_filter(from_json(asked, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]'), lambda m: m.role = 'user')[-1].parts, 'text') END AS user_input,
    CASE WHEN kind = 'agent' THEN parts_text(from_json(answered, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]')[-1].parts, 'text') END AS final_response
FROM kinds AS k
LEFT JOIN contents AS c ON c.trace_id = k.trace_id AND c.span_id = k.span_id
