/* +++
name       = "mlflow"
extends    = "gen_ai"
rank       = 150
detects    = "mlflow.spanType; every attribute value is JSON-encoded once more"
where      = '''
    attribute_keys LIKE '%"mlflow.%' OR scope_name LIKE 'mlflow.%'
'''
version    = "mlflow-tracing 3"
references = ["mlflow-tracing 3.17.2, mlflow/tracing/constant.py and utils"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, from_json(attributes, '{
        "mlflow.spanType": "JSON", "mlflow.spanInputs": "JSON", "mlflow.spanOutputs": "JSON",
        "mlflow.chat.tools": "JSON", "mlflow.chat.tokenUsage": "JSON", "mlflow.llm.model": "JSON", "mlflow.llm.provider": "JSON",
        "mlflow.llm.cost": "JSON", "metadata": "JSON", "kwargs": "JSON", "tool_call_id": "JSON", "tools": "JSON", "model": "JSON", "id": "JSON", "session.id": "JSON", "mlflow.trace.session": "JSON", "user.id": "JSON", "mlflow.trace.user": "JSON",
        "gen_ai.operation.name": "VARCHAR"
    }') AS a
    FROM candidates
),
values AS (
    SELECT *,
        text_of(decoded(a."mlflow.spanType")) AS span_type,
        decoded(a."mlflow.spanInputs") AS input, decoded(a."mlflow.spanOutputs") AS output,
        decoded(a."mlflow.chat.tokenUsage") AS usage,
        decoded(a."metadata") AS metadata
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
    -- Autologging of LangChain keeps the run's metadata, that of the OpenAI Agents SDK the runner's arguments.
    coalesce(text_of(decoded(a."mlflow.trace.session")), text_of(decoded(a."session.id")), metadata ->> '$.session_id', metadata ->> '$.thread_id',
        decoded(a."kwargs") ->> '$.run_config.group_id') AS session_id,
    coalesce(text_of(decoded(a."mlflow.trace.user")), text_of(decoded(a."user.id"))) AS user_id,
    CASE WHEN kind = 'tool' THEN name END AS tool_name,
    CASE WHEN kind = 'tool' THEN coalesce(text_of(decoded(a."tool_call_id")), output ->> '$.tool_call_id') END AS tool_call_id,
    CASE WHEN kind = 'tool' THEN call_arguments(input) END AS arguments,
    CASE WHEN kind = 'tool' THEN CASE WHEN output ->> '$.type' = 'tool' AND json_exists(output, '$.content')
        THEN decoded(output -> '$.content') ELSE result_value(output) END END AS observation,
    text_of(decoded(a."mlflow.llm.provider")) AS provider,
    CASE WHEN kind = 'model' THEN coalesce(text_of(decoded(a."mlflow.llm.model")), text_of(decoded(a."model"))) END AS model,
    CASE WHEN kind = 'model' THEN coalesce(output ->> '$.id', text_of(decoded(a."id"))) END AS response_id,
    -- Of the Agents SDK's spans the value is the list of messages or items itself. Anthropic's instructions stand beside the messages.
    CASE WHEN kind = 'model' THEN messages(CASE
        WHEN json_type(input) = 'ARRAY' THEN input
        WHEN json_exists(input, '$.system') AND json_type(input, '$.messages') = 'ARRAY'
            THEN to_json(list_concat([json_object('role', 'system', 'content', input -> '$.system')], from_json(input -> '$.messages', '["JSON"]')))
        ELSE coalesce(input -> '$.messages', input -> '$.input') END) END AS input_messages,
    CASE WHEN kind = 'model' THEN messages(coalesce(
        CASE WHEN json_exists(output, '$.choices') THEN to_json(output -> '$.choices[*].message') END,
        CASE WHEN json_type(output, '$.output') = 'ARRAY' THEN output -> '$.output' END, output)) END AS output_messages,
    CASE WHEN kind = 'model' THEN tool_definitions(coalesce(a."mlflow.chat.tools", input -> '$.tools', a."tools")) END AS offered_tools,
    CASE WHEN kind = 'model' THEN coalesce(output ->> '$.choices[0].finish_reason', output ->> '$.stop_reason') END AS finish_reason,
    count_of(usage -> '$.input_tokens') AS input_tokens,
    count_of(usage -> '$.output_tokens') AS output_tokens,
    count_of(usage -> '$.cache_read_input_tokens') AS cached_input_tokens,
    count_of(usage -> '$.cache_creation_input_tokens') AS cache_write_tokens,
    number_of(decoded(a."mlflow.llm.cost") -> '$.total_cost') AS cost_usd,
    CASE WHEN kind = 'agent' AND json_type(output) = 'VARCHAR' THEN output ->> '$' END AS final_response
FROM kinds
