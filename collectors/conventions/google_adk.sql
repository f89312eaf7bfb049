/* +++
name       = "google_adk"
extends    = "gen_ai"
rank       = 70
detects    = "scope gcp.vertex.agent, or that of OpenInference's instrumentation where it left a span of ADK's as it was"
where      = "scope_name IN ('gcp.vertex.agent', 'openinference.instrumentation.google_adk')"
version    = "google-adk 1.0 to 2.13, telemetry schemas 1.0, v1 and v2"
references = ["google-adk 1.0.0 and 2.13.0, google/adk/telemetry"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, operation_name, tool_name, from_json(attributes, '{
        "gcp.vertex.agent.llm_request": "VARCHAR", "gcp.vertex.agent.llm_response": "VARCHAR",
        "gcp.vertex.agent.tool_call_args": "VARCHAR", "gcp.vertex.agent.tool_response": "VARCHAR",
        "gcp.vertex.agent.session_id": "VARCHAR", "gen_ai.tool.call.id": "VARCHAR", "gen_ai.tool.call.result": "VARCHAR",
        "gen_ai.tool.description": "VARCHAR", "gen_ai.usage.input_tokens": "JSON"
    }') AS a
    FROM candidates
),
parsed AS (
    SELECT *,
        json_of_text(nullif(a."gcp.vertex.agent.llm_request", '{}')) AS request,
        json_of_text(nullif(a."gcp.vertex.agent.llm_response", '{}')) AS response,
        json_of_text(coalesce(a."gen_ai.tool.call.result", nullif(a."gcp.vertex.agent.tool_response", '{}'))) AS result,
        -- 1.0 tells the usage in the response alone, and later ones the cached and reasoning tokens.
        CASE WHEN a."gen_ai.usage.input_tokens" IS NULL THEN response -> '$.usage_metadata' END AS usage,
        response -> '$.usage_metadata' AS parts
    FROM found
)
SELECT
    trace_id, span_id, 'google_adk' AS convention,
    CASE
        -- One more span for a parallel batch, with an id that no model gave.
        WHEN tool_name = '(merged tools)' OR name = 'execute_tool (merged)' THEN 'drop'
        WHEN name = 'call_llm' THEN 'model'
        WHEN name = 'invocation' THEN 'workflow'
        WHEN name LIKE 'agent_run [%' THEN 'agent'
        WHEN name LIKE 'tool_call [%' THEN 'tool'
        WHEN operation_name IS NULL THEN 'other'
    END AS kind,
    nullif(regexp_extract(name, '^agent_run \[(.+)\]$', 1), '') AS agent_name,
    a."gcp.vertex.agent.session_id" AS session_id,
    nullif(regexp_extract(name, '^tool_call \[(.+)\]$', 1), '') AS tool_name,
    nullif(a."gen_ai.tool.call.id", '<not specified>') AS tool_call_id,
    json_of_text(nullif(a."gcp.vertex.agent.tool_call_args", '{}')) AS arguments,
    -- Schema v2 wraps what is no dictionary: {"result": ...}.
    CASE WHEN json_type(result) = 'OBJECT' AND json_keys(result) = ['result'] THEN decoded(result -> '$.result') ELSE result END AS observation,
    messages(to_json(list_concat(
        CASE WHEN json_exists(request, '$.config.system_instruction')
            THEN [json_object('role', 'system', 'content', request -> '$.config.system_instruction')] ELSE [] END,
        from_json(request -> '$.contents', '["JSON"]')))) AS input_messages,
    messages(to_json([response -> '$.content'])) AS output_messages,
    tool_definitions(to_json(request -> '$.config.tools[*].function_declarations[*]')) AS offered_tools,
    -- The stand-in for a tool that the model made up.
    CASE WHEN a."gen_ai.tool.description" = 'Tool not found' THEN FALSE END AS tool_ran,
    count_of(usage -> '$.prompt_token_count') + coalesce(count_of(usage -> '$.tool_use_prompt_token_count'), 0) AS input_tokens,
    count_of(usage -> '$.candidates_token_count') + coalesce(count_of(usage -> '$.thoughts_token_count'), 0) AS output_tokens,
    count_of(parts -> '$.cached_content_token_count') AS cached_input_tokens,
    count_of(parts -> '$.thoughts_token_count') AS reasoning_tokens
FROM parsed
