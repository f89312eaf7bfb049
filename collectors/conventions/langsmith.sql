/* +++
name       = "langsmith"
extends    = "gen_ai"
rank       = 140
detects    = "scope langsmith, or langsmith.span.kind"
where      = '''
    scope_name = 'langsmith' OR attribute_keys LIKE '%"langsmith.span.kind"%'
'''
version    = "langsmith 0.15"
references = ["langsmith 0.15.1, langsmith/_internal/otel/_otel_exporter.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, status_code, from_json(attributes, '{
        "langsmith.span.kind": "VARCHAR", "gen_ai.prompt": "VARCHAR", "gen_ai.completion": "VARCHAR",
        "langsmith.metadata.session_id": "VARCHAR", "langsmith.metadata.thread_id": "VARCHAR", "langsmith.metadata.conversation_id": "VARCHAR",
        "langsmith.metadata.usage_metadata": "JSON", "gen_ai.tool.definitions": "JSON"
    }') AS a
    FROM candidates
),
values AS (
    SELECT f.*, x.exception_message,
        -- The operation name is wrong for some kinds (a retriever says embeddings), so the kind decides.
        CASE a."langsmith.span.kind" WHEN 'llm' THEN 'model' WHEN 'tool' THEN 'tool' WHEN 'retriever' THEN 'retrieval' ELSE 'other' END AS kind,
        json_of_text(a."gen_ai.prompt") AS input, 
        -- Of a run that raised, the output is an empty object.
        json_of_text(CASE WHEN x.exception_message IS NULL OR a."gen_ai.completion" <> '{}' THEN a."gen_ai.completion" END) AS output,
        decoded(a."langsmith.metadata.usage_metadata") AS usage
    FROM found AS f LEFT JOIN span_exceptions AS x USING (trace_id, span_id)
),
results AS (
    SELECT *, CASE WHEN json_type(output) = 'OBJECT' AND json_keys(output) = ['output'] THEN decoded(output -> '$.output') ELSE output END AS result
    FROM values
)
SELECT
    trace_id, span_id, 'langsmith' AS convention, kind,
    coalesce(a."langsmith.metadata.thread_id", a."langsmith.metadata.session_id", a."langsmith.metadata.conversation_id") AS session_id,
    CASE WHEN kind = 'tool' THEN name END AS tool_name,
    CASE WHEN kind = 'tool' THEN coalesce(result ->> '$.tool_call_id', result ->> '$.kwargs.tool_call_id', result ->> '$.data.tool_call_id') END AS tool_call_id,
    CASE WHEN kind = 'tool' THEN CASE WHEN json_type(input) = 'OBJECT' AND json_keys(input) = ['input'] THEN decoded(input -> '$.input')
        ELSE call_arguments(input) END END AS arguments,
    CASE WHEN kind = 'tool' THEN CASE WHEN result ->> '$.type' = 'tool' AND json_exists(result, '$.content')
        THEN decoded(result -> '$.content') ELSE result_value(result) END END AS observation,
    CASE WHEN kind = 'tool' AND result ->> '$.type' = 'tool' AND result ->> '$.status' = 'error' THEN TRUE END AS result_failed,
    CASE WHEN kind = 'model' THEN coalesce(output ->> '$.id', output ->> '$.generations[0][0].message.kwargs.response_metadata.id') END AS response_id,
    CASE WHEN kind = 'model' THEN messages(coalesce(input -> '$.messages', input -> '$.input')) END AS input_messages,
    CASE WHEN kind = 'model' THEN messages(coalesce(
        CASE WHEN json_exists(output, '$.generations') THEN to_json([output -> '$.generations[0][0].message']) END,
        CASE WHEN json_exists(output, '$.choices') THEN to_json(output -> '$.choices[*].message') END,
        CASE WHEN json_type(output, '$.output') = 'ARRAY' THEN output -> '$.output' END, output)) END AS output_messages,
    CASE WHEN kind = 'model' THEN tool_definitions(coalesce(a."gen_ai.tool.definitions", input -> '$.tools')) END AS offered_tools,
    CASE WHEN kind = 'model' THEN coalesce(output ->> '$.choices[0].finish_reason', output ->> '$.generations[0][0].generation_info.finish_reason') END AS finish_reason,
    -- A failed tool usually has status OK; the exception stands in an event alone, its real type in the message.
    CASE WHEN kind = 'tool' AND exception_message IS NOT NULL THEN TRUE END AS failed,
    nullif(regexp_extract(exception_message, '^(\w+(?:Error|Exception|Timeout))\b', 1), '') AS error_type,
    exception_message AS error_message,
    count_of(usage -> '$.input_tokens') AS input_tokens,
    count_of(usage -> '$.output_tokens') AS output_tokens,
    count_of(usage -> '$.input_token_details.cache_read') AS cached_input_tokens,
    count_of(usage -> '$.input_token_details.cache_creation') AS cache_write_tokens,
    count_of(usage -> '$.output_token_details.reasoning') AS reasoning_tokens
FROM results
