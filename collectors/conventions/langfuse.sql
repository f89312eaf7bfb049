/* +++
name       = "langfuse"
extends    = "gen_ai"
rank       = 20
detects    = "scope langfuse-sdk, or langfuse.observation.type"
where      = '''
    scope_name = 'langfuse-sdk' OR attribute_keys LIKE '%"langfuse.observation.type"%'
'''
version    = "langfuse 3 to 5"
references = ["langfuse 5.0.4, langfuse/_client/attributes.py, langchain/CallbackHandler.py and openai.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, status_code, status_message, from_json(attributes, '{
        "langfuse.observation.type": "VARCHAR", "langfuse.observation.input": "VARCHAR", "langfuse.observation.output": "VARCHAR",
        "langfuse.observation.model.name": "VARCHAR", "langfuse.observation.usage_details": "JSON",
        "langfuse.observation.cost_details": "JSON", "langfuse.observation.level": "VARCHAR",
        "langfuse.observation.status_message": "VARCHAR", "langfuse.observation.metadata.tool_call_id": "VARCHAR",
        "langfuse.observation.metadata.ls_integration": "VARCHAR", "langfuse.observation.metadata.is_langchain_root": "VARCHAR",
        "langfuse.session.id": "VARCHAR", "session.id": "VARCHAR", "langfuse.user.id": "VARCHAR", "user.id": "VARCHAR"
    }') AS a
    FROM candidates
),
values AS (
    SELECT *,
        CASE a."langfuse.observation.type"
            WHEN 'generation' THEN 'model' WHEN 'tool' THEN 'tool' WHEN 'agent' THEN 'agent'
            WHEN 'retriever' THEN 'retrieval' WHEN 'embedding' THEN 'retrieval'
            -- The callback handler calls a chain an agent by its name alone, so a node "agent" but not the graph around it.
            ELSE CASE WHEN text_of(json_of_text(a."langfuse.observation.metadata.ls_integration")) = 'langgraph'
                AND text_of(json_of_text(a."langfuse.observation.metadata.is_langchain_root")) = 'true' THEN 'agent' ELSE 'other' END
            END AS kind,
        json_of_text(a."langfuse.observation.input") AS input,
        json_of_text(a."langfuse.observation.output") AS output,
        decoded(a."langfuse.observation.usage_details") AS usage
    FROM found
)
SELECT
    trace_id, span_id, 'langfuse' AS convention, kind,
    CASE WHEN kind = 'agent' THEN name END AS agent_name,
    coalesce(a."langfuse.session.id", a."session.id") AS session_id,
    coalesce(a."langfuse.user.id", a."user.id") AS user_id,
    CASE WHEN kind = 'tool' THEN name END AS tool_name,
    CASE WHEN kind = 'tool' THEN coalesce(
        text_of(json_of_text(a."langfuse.observation.metadata.tool_call_id")), output ->> '$.tool_call_id', output ->> '$.data.tool_call_id', output ->> '$.kwargs.tool_call_id') END AS tool_call_id,
    CASE WHEN kind = 'tool' THEN call_arguments(input) END AS arguments,
    -- The callback handler keeps a ToolMessage as a plain object.
    CASE WHEN kind = 'tool' THEN CASE WHEN output ->> '$.role' = 'tool' OR output ->> '$.type' = 'tool'
        THEN decoded(coalesce(output -> '$.content', output -> '$.data.content')) ELSE result_value(output) END END AS observation,
    CASE WHEN kind = 'tool' AND output ->> '$.status' = 'error' AND (output ->> '$.role' = 'tool' OR output ->> '$.type' = 'tool') THEN TRUE END AS result_failed,
    a."langfuse.observation.model.name" AS model,
    CASE WHEN kind = 'model' THEN messages(input) END AS input_messages,
    CASE WHEN kind = 'model' THEN messages(output) END AS output_messages,
    CASE WHEN kind = 'model' THEN tool_definitions(input -> '$.tools') END AS offered_tools,
    status_code = 'error' OR a."langfuse.observation.level" = 'ERROR' AS failed,
    coalesce(a."langfuse.observation.status_message", status_message) AS error_message,
    -- The OpenAI wrapper keeps the provider's keys, whole; the LangChain handler takes cached and other details out of input and output.
    CASE WHEN usage ->> '$.prompt_tokens' IS NOT NULL THEN count_of(usage -> '$.prompt_tokens')
        ELSE coalesce(count_of(usage -> '$.input'), count_of(usage -> '$.input_tokens'))
            + coalesce(count_of(usage -> '$.input_cache_read'), 0) + coalesce(count_of(usage -> '$.input_cache_creation'), 0)
            + coalesce(count_of(usage -> '$.input_audio'), 0) END AS input_tokens,
    CASE WHEN usage ->> '$.completion_tokens' IS NOT NULL THEN count_of(usage -> '$.completion_tokens')
        ELSE coalesce(count_of(usage -> '$.output'), count_of(usage -> '$.output_tokens'))
            + coalesce(count_of(usage -> '$.output_reasoning'), 0) + coalesce(count_of(usage -> '$.output_audio'), 0) END AS output_tokens,
    coalesce(count_of(usage -> '$.prompt_tokens_details.cached_tokens'), count_of(usage -> '$.input_tokens_details.cached_tokens'),
        count_of(usage -> '$.input_cache_read'), count_of(usage -> '$.input_cached_tokens'), count_of(usage -> '$.cache_read_input_tokens')) AS cached_input_tokens,
    coalesce(count_of(usage -> '$.input_cache_creation'), count_of(usage -> '$.cache_creation_input_tokens')) AS cache_write_tokens,
    coalesce(count_of(usage -> '$.completion_tokens_details.reasoning_tokens'), count_of(usage -> '$.output_reasoning')) AS reasoning_tokens,
    number_of(decoded(a."langfuse.observation.cost_details") -> '$.total') AS cost_usd,
    CASE WHEN kind = 'agent' AND json_type(output) = 'VARCHAR' THEN a."langfuse.observation.output" END AS final_response
FROM values
