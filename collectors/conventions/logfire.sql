/* +++
name       = "logfire"
extends    = "gen_ai"
rank       = 50
detects    = "scope logfire or logfire.*, else logfire.msg_template where the scope is lost"
where      = '''
    -- Not whatever passes through Logfire's provider: spans of other libraries gain logfire.msg there and stay their own.
    scope_name = 'logfire' OR scope_name LIKE 'logfire.%' OR (coalesce(scope_name, '') = '' AND attribute_keys LIKE '%"logfire.msg_template"%')
'''
version    = "logfire 2 to 5"
references = ["pydantic/logfire, logfire/_internal/integrations and logfire/_internal/constants.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, parent_span_id, scope_name, name, operation_name, status_code, start_time_unix_nano AS began, from_json(attributes, '{
        "logfire.span_type": "VARCHAR", "logfire.msg_template": "VARCHAR", "logfire.msg": "VARCHAR", "logfire.level_num": "JSON",
        "name": "VARCHAR", "input": "VARCHAR", "output": "VARCHAR", "group_id": "VARCHAR", "events": "JSON",
        "raw_input": "VARCHAR", "response": "JSON", "request": "JSON", "usage": "JSON", "tools": "JSON", "handoffs": "JSON",
        "request_data": "JSON", "response_data": "JSON", "error": "JSON", "error.type": "VARCHAR",
        "gen_ai.usage.input_tokens": "JSON", "gen_ai.response.id": "VARCHAR"
    }') AS a
    FROM candidates
),
kinds AS (
    SELECT *, coalesce(a."logfire.msg_template", name) AS template, CASE
        WHEN operation_name IS NOT NULL THEN NULL
        WHEN template LIKE 'Agent run: %' THEN 'agent'
        WHEN template LIKE 'Function: %' THEN 'tool'
        -- logfire.instrument_mcp, client and server (MCP SDK 1).
        WHEN template LIKE 'MCP request: tools/call %' OR template = 'MCP server handle request: tools/call' THEN 'tool'
        WHEN template LIKE 'Embedding%' THEN 'retrieval'
        WHEN regexp_matches(template, '^(Chat completion|Chat Completion|Completion with|Responses API|Message with|streaming response from)') THEN 'model'
        WHEN template LIKE 'OpenAI Agents trace: %' THEN 'workflow'
        ELSE 'other' END AS kind,
        operation_name = 'chat' OR kind = 'model' AS is_model,
        template LIKE 'MCP %' AND kind = 'tool' AS is_mcp,
        decoded(a.usage) AS usage, decoded(a.response) AS response, decoded(a.request) AS mcp_request,
        decoded(a.request_data) AS request, decoded(a.response_data) AS answer,
        from_json(decoded(a.events), '["JSON"]') AS events,
        -- Format 1 of the Responses API: the answer is what the assistant says last, once there is one.
        CASE WHEN a."gen_ai.response.id" IS NOT NULL OR a."gen_ai.usage.input_tokens" IS NOT NULL THEN list_position(list_reverse(
            list_transform(events, lambda e: e ->> '$."event.name"' IN ('gen_ai.assistant.message', 'gen_ai.choice'))), FALSE) - 1 ELSE 0 END AS answers
    FROM found
),
-- The request's span ends when a stream begins; a log under the same parent tells what came. The n-th last log that follows a request
-- is the n-th last request's.
requests AS (
    SELECT trace_id, parent_span_id, scope_name, span_id, began,
        row_number() OVER (PARTITION BY trace_id, parent_span_id, scope_name ORDER BY began, span_id) AS number
    FROM kinds
    WHERE is_model AND template NOT LIKE 'streaming response from%' AND status_code IS DISTINCT FROM 'error'
        AND a."gen_ai.usage.input_tokens" IS NULL AND a."gen_ai.response.id" IS NULL AND answer IS NULL
),
streams AS (
    SELECT s.trace_id, s.span_id, r.parent_span_id, r.scope_name,
        r.number + 1 - row_number() OVER (PARTITION BY r.trace_id, r.span_id ORDER BY s.began DESC, s.span_id DESC) AS number
    FROM (SELECT *, coalesce(parent_span_id, '') AS parent FROM kinds WHERE template LIKE 'streaming response from%') AS s
    ASOF JOIN (SELECT *, coalesce(parent_span_id, '') AS parent FROM requests) AS r
        ON r.trace_id = s.trace_id AND r.parent = s.parent AND r.scope_name = s.scope_name AND s.began >= r.began
),
streamed AS (
    SELECT s.trace_id, s.span_id, r.span_id AS request_span, r.began AS request_began
    FROM streams AS s
    JOIN requests AS r ON r.trace_id = s.trace_id AND r.parent_span_id IS NOT DISTINCT FROM s.parent_span_id AND r.scope_name = s.scope_name AND r.number = s.number
)
SELECT
    trace_id, span_id, 'logfire' AS convention, kind,
    -- Below its request, the log is the same call, which began with the request.
    request_span AS parent_span_id, request_began AS started,
    a."logfire.msg" AS name,
    CASE WHEN kind = 'agent' THEN a.name END AS agent_name,
    nullif(a.group_id, 'null') AS session_id,
    CASE WHEN is_mcp THEN mcp_request ->> '$.params.name' WHEN kind = 'tool' THEN a.name END AS tool_name,
    CASE WHEN is_mcp THEN mcp_request -> '$.params.arguments' WHEN kind = 'tool' THEN json_of_text(a.input) END AS arguments,
    CASE WHEN is_mcp THEN result_value(response) WHEN kind = 'tool' THEN json_of_text(a.output) END AS observation,
    CASE WHEN is_mcp THEN result_failed(response) END AS result_failed,
    -- request_data of the OpenAI Agents SDK is taken by reference and holds what came after the call too, so it is the last resort.
    CASE WHEN kind = 'model' OR is_model THEN coalesce(
        messages(a.raw_input), messages(a.input),
        messages(to_json(events[:len(events) - answers])),
        messages(to_json(list_concat(
            CASE WHEN json_exists(request, '$.system') THEN [json_object('role', 'system', 'content', request -> '$.system')] ELSE [] END,
            from_json(request -> '$.messages', '["JSON"]')))),
        messages(request -> '$.input')) END AS input_messages,
    CASE WHEN kind = 'model' OR is_model THEN coalesce(
        messages(response -> '$.output'), messages(a.output),
        messages(to_json(events[len(events) - answers + 1:])),
        CASE WHEN scope_name = 'logfire.anthropic' AND json_exists(answer, '$.message') THEN
            -- Arguments as {"input": {...}}.
            messages(to_json([json_object('role', 'assistant', 'content', answer -> '$.message.content', 'tool_calls', list_transform(
                from_json(answer -> '$.message.tool_calls', '["JSON"]'), lambda c: json_object('id', c -> '$.id', 'name', c -> '$.function.name',
                    'arguments', coalesce(decoded(c -> '$.function.arguments') -> '$.input', c -> '$.function.arguments'))))]))
        ELSE messages(to_json([answer -> '$.message'])) END,
        CASE WHEN (answer ->> '$.combined_chunk_content') <> '' THEN messages(to_json([json_object('role', 'assistant', 'content', answer ->> '$.combined_chunk_content')])) END,
        CASE WHEN json_exists(answer, '$.text') THEN messages(to_json([json_object('role', 'assistant', 'content', answer ->> '$.text')])) END) END AS output_messages,
    CASE
        WHEN kind = 'model' OR is_model THEN tool_definitions(coalesce(response -> '$.tools', request -> '$.tools', a.tools))
        -- The OpenAI Agents SDK names its tools on the agent, all but those that hand off: an agent that has such has tools that are not named.
        WHEN kind = 'agent' AND decoded(a.handoffs)::VARCHAR = '[]' THEN tool_definitions(a.tools) END AS offered_tools,
    status_code = 'error' OR coalesce(count_of(a."logfire.level_num") >= 17, FALSE) AS failed,
    -- The Claude Agent SDK's failure is a text, which stands as the error's type.
    CASE WHEN scope_name = 'logfire.claude_agent_sdk' AND contains(a."error.type", ' ')
        THEN coalesce(nullif(regexp_extract(a."error.type", '^(?:[a-z_.]+\.)?([A-Z]\w*(?:Error|Exception|Timeout))\b', 1), ''), 'Error') END AS error_type,
    coalesce(decoded(a.error) ->> '$.message', CASE WHEN scope_name = 'logfire.claude_agent_sdk' THEN a."error.type" END) AS error_message,
    CASE WHEN kind = 'model' OR is_model THEN coalesce(
        count_of(usage -> '$.input_tokens_details.cached_tokens'), count_of(answer -> '$.usage.prompt_tokens_details.cached_tokens'),
        count_of(answer -> '$.usage.input_tokens_details.cached_tokens'), count_of(answer -> '$.usage.cache_read_input_tokens')) END AS cached_input_tokens,
    -- Until version 4 the provider's own counts were all there was; Anthropic's leave the cache out.
    CASE WHEN kind = 'model' OR is_model THEN coalesce(count_of(a."gen_ai.usage.input_tokens"), count_of(answer -> '$.usage.prompt_tokens'),
        count_of(answer -> '$.usage.input_tokens') + coalesce(count_of(answer -> '$.usage.cache_read_input_tokens'), 0)
            + coalesce(count_of(answer -> '$.usage.cache_creation_input_tokens'), 0)) END AS input_tokens,
    CASE WHEN kind = 'model' OR is_model THEN coalesce(
        count_of(answer -> '$.usage.completion_tokens'), count_of(answer -> '$.usage.output_tokens')) END AS output_tokens
FROM kinds LEFT JOIN streamed USING (trace_id, span_id)
