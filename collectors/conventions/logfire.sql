/* +++
name       = "logfire"
extends    = "gen_ai"
rank       = 50
detects    = "logfire.msg_template, or a scope logfire or logfire.*; and Logfire's placeholders of spans that have not ended"
version    = "logfire 4 and 5"
references = ["pydantic/logfire, logfire/_internal/integrations and logfire/_internal/constants.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, operation_name, status_code, from_json(attributes, '{
        "logfire.span_type": "VARCHAR", "logfire.msg_template": "VARCHAR", "logfire.msg": "VARCHAR", "logfire.level_num": "JSON",
        "name": "VARCHAR", "input": "VARCHAR", "output": "VARCHAR", "group_id": "VARCHAR",
        "raw_input": "VARCHAR", "response": "JSON", "usage": "JSON", "tools": "JSON",
        "request_data": "JSON", "response_data": "JSON", "error": "JSON"
    }') AS a
    FROM candidates
    WHERE attributes LIKE '%"logfire.%' OR scope_name = 'logfire' OR scope_name LIKE 'logfire.%'
),
kinds AS (
    SELECT *, CASE
        -- Sent again as the real span.
        WHEN a."logfire.span_type" = 'pending_span' THEN 'drop'
        WHEN operation_name IS NOT NULL THEN NULL
        WHEN a."logfire.msg_template" LIKE 'Agent run: %' THEN 'agent'
        WHEN a."logfire.msg_template" LIKE 'Function: %' THEN 'tool'
        WHEN regexp_matches(a."logfire.msg_template", '^(Chat completion|Chat Completion|Responses API|Message|Embedding)') THEN 'model'
        WHEN a."logfire.msg_template" LIKE 'OpenAI Agents trace: %' THEN 'workflow'
        ELSE 'other' END AS kind,
        decoded(a.usage) AS usage, decoded(a.response) AS response,
        decoded(a.request_data) AS request, decoded(a.response_data) AS answer
    FROM found
)
SELECT
    trace_id, span_id, 'logfire' AS convention, kind,
    a."logfire.msg" AS name,
    CASE WHEN kind = 'agent' THEN a.name END AS agent_name,
    nullif(a.group_id, 'null') AS session_id,
    CASE WHEN kind = 'tool' THEN a.name END AS tool_name,
    CASE WHEN kind = 'tool' THEN json_of_text(a.input) END AS arguments,
    CASE WHEN kind = 'tool' THEN json_of_text(a.output) END AS observation,
    -- request_data is taken by reference and holds what came after the call too, so it is the last resort.
    CASE WHEN kind = 'model' THEN coalesce(messages(a.raw_input), messages(a.input), messages(request -> '$.messages'), messages(request -> '$.input')) END AS input_messages,
    CASE WHEN kind = 'model' THEN coalesce(messages(response -> '$.output'), messages(a.output), messages(to_json([answer -> '$.message']))) END AS output_messages,
    CASE WHEN kind = 'model' THEN tool_definitions(coalesce(response -> '$.tools', request -> '$.tools', a.tools)) END AS offered_tools,
    status_code = 'error' OR coalesce(count_of(a."logfire.level_num") >= 17, FALSE) AS failed,
    decoded(a.error) ->> '$.message' AS error_message,
    CASE WHEN kind = 'model' THEN coalesce(count_of(usage -> '$.input_tokens_details.cached_tokens'), count_of(answer -> '$.usage.prompt_tokens_details.cached_tokens')) END AS cached_input_tokens
FROM kinds
