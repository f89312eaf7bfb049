/* +++
name       = "mlflow"
extends    = "gen_ai"
rank       = 150
detects    = "mlflow.spanType; every attribute value is JSON-encoded once more"
version    = "mlflow-tracing 3"
references = ["mlflow-tracing 3.17.2, mlflow/tracing/constant.py and utils"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, from_json(attributes, '{
        "mlflow.spanType": "JSON", "mlflow.spanInputs": "JSON", "mlflow.spanOutputs": "JSON",
        "mlflow.chat.tools": "JSON", "mlflow.chat.tokenUsage": "JSON", "mlflow.llm.model": "JSON", "mlflow.llm.provider": "JSON",
        "mlflow.llm.cost": "JSON", "session.id": "JSON", "mlflow.trace.session": "JSON", "user.id": "JSON", "mlflow.trace.user": "JSON",
        "gen_ai.operation.name": "VARCHAR"
    }') AS a
    FROM candidates
    WHERE attributes LIKE '%"mlflow.%' OR scope_name LIKE 'mlflow.%'
),
values AS (
    SELECT *,
        text_of(decoded(a."mlflow.spanType")) AS span_type,
        decoded(a."mlflow.spanInputs") AS input, decoded(a."mlflow.spanOutputs") AS output,
        decoded(a."mlflow.chat.tokenUsage") AS usage
    FROM found
),
kinds AS (
    SELECT *, CASE
        WHEN span_type IN ('LLM', 'CHAT_MODEL') THEN 'model'
        WHEN span_type = 'TOOL' THEN 'tool'
        WHEN span_type = 'AGENT' THEN 'agent'
        WHEN span_type IN ('RETRIEVER', 'EMBEDDING', 'RERANKER') THEN 'retrieval'
        WHEN a."gen_ai.operation.name" IS NULL THEN 'other' END AS kind
    FROM values
)
SELECT
    trace_id, span_id, 'mlflow' AS convention, kind,
    CASE WHEN kind = 'agent' THEN name END AS agent_name,
    coalesce(text_of(decoded(a."mlflow.trace.session")), text_of(decoded(a."session.id"))) AS session_id,
    coalesce(text_of(decoded(a."mlflow.trace.user")), text_of(decoded(a."user.id"))) AS user_id,
    CASE WHEN kind = 'tool' THEN name END AS tool_name,
    CASE WHEN kind = 'tool' THEN output ->> '$.tool_call_id' END AS tool_call_id,
    CASE WHEN kind = 'tool' THEN call_arguments(input) END AS arguments,
    CASE WHEN kind = 'tool' THEN CASE WHEN output ->> '$.type' = 'tool' AND json_exists(output, '$.content')
        THEN decoded(output -> '$.content') ELSE result_value(output) END END AS observation,
    text_of(decoded(a."mlflow.llm.provider")) AS provider,
    text_of(decoded(a."mlflow.llm.model")) AS model,
    CASE WHEN kind = 'model' THEN output ->> '$.id' END AS response_id,
    CASE WHEN kind = 'model' THEN messages(coalesce(input -> '$.messages', input -> '$.input')) END AS input_messages,
    CASE WHEN kind = 'model' THEN messages(coalesce(
        to_json(output -> '$.choices[*].message'), output -> '$.output', output)) END AS output_messages,
    CASE WHEN kind = 'model' THEN tool_definitions(coalesce(a."mlflow.chat.tools", input -> '$.tools')) END AS offered_tools,
    CASE WHEN kind = 'model' THEN output ->> '$.choices[0].finish_reason' END AS finish_reason,
    count_of(usage -> '$.input_tokens') AS input_tokens,
    count_of(usage -> '$.output_tokens') AS output_tokens,
    count_of(usage -> '$.cache_read_input_tokens') AS cached_input_tokens,
    count_of(usage -> '$.cache_creation_input_tokens') AS cache_write_tokens,
    number_of(decoded(a."mlflow.llm.cost") -> '$.total_cost') AS cost_usd,
    CASE WHEN kind = 'agent' AND json_type(output) = 'VARCHAR' THEN output ->> '$' END AS final_response
FROM kinds
