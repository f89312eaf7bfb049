/* +++
name       = "openinference"
rank       = 30
detects    = "openinference.span.kind"
where      = '''
    openinference_kind IS NOT NULL
    -- OpenInference's processor adds its keys to Pydantic AI's own spans, which say more.
    AND scope_name IS DISTINCT FROM 'pydantic-ai'
'''
version    = "openinference-semantic-conventions 0.1.42"
references = [
    "Arize-ai/openinference, spec/semantic_conventions.md and spec/tool_calling.md",
]
+++ */
WITH found AS (
    SELECT
        trace_id, span_id, name, openinference_kind, status_code, status_message, scope_name, attributes,
        from_json(attributes, '{
            "agent.name": "VARCHAR", "graph.node.id": "VARCHAR", "session.id": "VARCHAR", "user.id": "VARCHAR",
            "tool.name": "VARCHAR", "tool.id": "VARCHAR", "tool_call.id": "VARCHAR", "tool.parameters": "JSON",
            "input.value": "JSON", "output.value": "JSON",
            "llm.provider": "VARCHAR", "llm.system": "VARCHAR",
            "llm.response.model_name": "VARCHAR", "llm.model_name": "VARCHAR", "llm.request.model_name": "VARCHAR",
            "llm.finish_reason": "VARCHAR", "error.type": "VARCHAR", "gen_ai.response.id": "VARCHAR",
            "llm.token_count.prompt": "JSON", "llm.token_count.completion": "JSON",
            "llm.token_count.prompt_details.cache_read": "JSON", "llm.token_count.prompt_details.cache_input": "JSON",
            "llm.token_count.prompt_details.cache_write": "JSON", "llm.token_count.completion_details.reasoning": "JSON",
            "llm.cost.total": "JSON"
        }') AS a
    FROM candidates
),
kinds AS (
    SELECT f.*,
        CASE
            -- LlamaIndex marks private helpers of its model class as LLM too; they call no model.
            WHEN openinference_kind = 'LLM' AND scope_name LIKE '%llama_index' AND regexp_matches(name, '\._[a-z]') THEN 'other'
            WHEN openinference_kind = 'LLM' THEN 'model'
            -- A hand-off of the OpenAI Agents SDK: from agent to agent, no tool of the user's.
            WHEN openinference_kind = 'TOOL' AND scope_name LIKE '%openai_agents' AND name LIKE 'handoff to %' THEN 'other'
            WHEN openinference_kind = 'TOOL' THEN 'tool'
            WHEN openinference_kind = 'AGENT' THEN 'agent'
            WHEN openinference_kind IN ('RETRIEVER', 'EMBEDDING', 'RERANKER') THEN 'retrieval'
            ELSE 'other' END AS kind,
        captured(text_of(a."input.value")) AS input_text,
        captured(text_of(a."output.value")) AS output_text
    FROM found AS f
),
decoded_values AS (
    SELECT k.*,
        json_of_text(input_text) AS input_value,
        -- A response that is not JSON but a Python repr stays text.
        json_of_text(output_text) AS output_value,
        CASE WHEN kind IN ('model', 'agent') THEN flattened_call(attributes, 'llm.input_messages', 'llm.output_messages', 'llm.tools') END AS call
    FROM kinds AS k
)
SELECT
    v.trace_id, v.span_id, 'openinference' AS convention, v.kind,
    v.name,
    coalesce(a."agent.name", a."graph.node.id", CASE WHEN v.kind = 'agent' THEN v.name END) AS agent_name,
    a."session.id" AS session_id,
    a."user.id" AS user_id,
    CASE WHEN v.kind = 'tool' THEN coalesce(a."tool.name", regexp_replace(v.name, '\.__call__$', '')) END AS tool_name,
    CASE WHEN v.kind = 'tool' THEN coalesce(
        captured(a."tool.id"), captured(a."tool_call.id"),
        output_value ->> '$.data.tool_call_id', output_value ->> '$.kwargs.tool_call_id', output_value ->> '$.tool_call_id',
        CASE WHEN scope_name LIKE '%.google_adk' THEN output_value ->> '$.id' END) END AS tool_call_id,
    -- tool.parameters holds arguments for some producers and the schema for others.
    CASE WHEN v.kind = 'tool' THEN coalesce(
        call_arguments(input_value),
        CASE WHEN NOT json_exists(decoded(a."tool.parameters"), '$.properties') AND NOT json_exists(decoded(a."tool.parameters"), '$.type')
            THEN decoded(a."tool.parameters") END) END AS arguments,
    -- Google ADK's result stands in Gemini's envelope: {"id", "name", "response"}.
    CASE WHEN v.kind = 'tool' THEN coalesce(CASE WHEN scope_name LIKE '%.google_adk' THEN output_value -> '$.response' END, result_value(output_value)) END AS observation,
    CASE WHEN v.kind = 'tool' THEN result_failed(output_value) END AS result_failed,
    coalesce(a."llm.provider", a."llm.system") AS provider,
    coalesce(a."llm.response.model_name", a."llm.model_name", a."llm.request.model_name") AS model,
    -- The OpenAI and Anthropic instrumentors keep the provider's response; LangChain keeps its id inside the generation.
    CASE WHEN v.kind = 'model' THEN coalesce(
        a."gen_ai.response.id",
        output_value ->> '$.id',
        output_value ->> '$.generations[0][0].message.kwargs.response_metadata.id',
        output_value ->> '$.llm_output.id') END AS response_id,
    call.input AS input_messages,
    call.output AS output_messages,
    CASE WHEN v.kind = 'model' THEN call.tools END AS offered_tools,
    CASE WHEN v.kind = 'model' THEN a."llm.finish_reason" END AS finish_reason,
    v.status_code = 'error' AS failed,
    coalesce(a."error.type", x.exception_type, CASE WHEN v.status_code = 'error' THEN nullif(regexp_extract(v.status_message, '^(\w+(?:Error|Exception|Timeout))\b', 1), '') END) AS error_type,
    coalesce(x.exception_message, v.status_message) AS error_message,
    count_of(a."llm.token_count.prompt") AS input_tokens,
    count_of(a."llm.token_count.completion") AS output_tokens,
    coalesce(count_of(a."llm.token_count.prompt_details.cache_read"), count_of(a."llm.token_count.prompt_details.cache_input")) AS cached_input_tokens,
    count_of(a."llm.token_count.prompt_details.cache_write") AS cache_write_tokens,
    count_of(a."llm.token_count.completion_details.reasoning") AS reasoning_tokens,
    number_of(a."llm.cost.total") AS cost_usd,
    CASE WHEN v.kind = 'agent' AND json_type(input_value) = 'VARCHAR' THEN input_text END AS user_input,
    CASE WHEN v.kind = 'agent' AND json_type(output_value) = 'VARCHAR' THEN output_text END AS final_response
FROM decoded_values AS v
LEFT JOIN span_exceptions AS x ON x.trace_id = v.trace_id AND x.span_id = v.span_id
