/* +++
name       = "openlit"
extends    = "gen_ai"
rank       = 160
detects    = "scope openlit or openlit.*"
where      = "scope_name = 'openlit' OR scope_name LIKE 'openlit.%'"
version    = "openlit 1.45"
references = ["openlit 1.45.0, openlit/__init__.py (trace) and openlit/instrumentation/{openai,anthropic,bedrock,langchain,langgraph,openai_agents}"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, scope_name, operation_name, tool_name, from_json(attributes, '{
        "gen_ai.agent.name": "VARCHAR", "gen_ai.tool.call.result": "VARCHAR", "gen_ai.tool.call.id": "VARCHAR", "gen_ai.tool.call.arguments": "VARCHAR", "gen_ai.tool.args": "VARCHAR",
        "gen_ai.output.messages": "JSON", "function.args": "VARCHAR", "function.kwargs": "VARCHAR",
        "gen_ai.usage.input_tokens": "JSON", "gen_ai.usage.cache_read.input_tokens": "JSON", "gen_ai.usage.cache_creation.input_tokens": "JSON"
    }') AS a
    FROM candidates
),
-- A model's span names the calls that it requested as lists with commas between.
requested AS (
    SELECT DISTINCT trace_id, unnest(string_split(tool_name, ', ')) AS name FROM found WHERE operation_name IN ('chat', 'generate_content') AND tool_name IS NOT NULL
),
kinds AS (
    SELECT f.*, CASE
        -- @openlit.trace says nothing of what it decorates; what the model asked for by that name is a tool.
        WHEN f.scope_name = 'openlit' AND f.operation_name IS NULL AND r.name IS NOT NULL THEN 'tool'
        -- Turns and tasks of the OpenAI Agents SDK say invoke_agent too, but have no name; LangGraph's nodes have theirs.
        WHEN f.operation_name = 'invoke_agent' AND (a."gen_ai.agent.name" IS NULL OR f.scope_name = 'openlit.instrumentation.langgraph') THEN 'other' END AS kind
    FROM found AS f LEFT JOIN requested AS r USING (trace_id, name)
),
calls AS (
    SELECT *,
        -- LangChain's ToolMessage as text: content='...' name='...' tool_call_id='...' status='error'
        regexp_extract(a."gen_ai.tool.call.result", $$^content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") (?:\w+=.* )?tool_call_id='([^']*)'(?: \w+=.* )?( status='error')?$$, ['content', 'id', 'status']) AS tool_message, string_split(tool_name, ', ') AS names, string_split(a."gen_ai.tool.call.id", ', ') AS ids,
        from_json(json_of_text('[' || coalesce(a."gen_ai.tool.call.arguments", a."gen_ai.tool.args") || ']'), '["JSON"]') AS given
    FROM kinds
)
SELECT
    trace_id, span_id, 'openlit' AS convention, kind,
    CASE WHEN kind = 'tool' THEN name END AS tool_name,
    CASE WHEN kind = 'tool' AND a."function.args" = '()' THEN json_of_repr(a."function.kwargs")
        -- LangChain hands its callbacks the arguments as a Python repr.
        WHEN operation_name = 'execute_tool' AND a."gen_ai.tool.call.arguments" LIKE '{''%' THEN json_of_repr(a."gen_ai.tool.call.arguments") END AS arguments,
    CASE WHEN kind = 'tool' THEN result_value(json_of_text(text_of(a."gen_ai.output.messages")))
        WHEN tool_message.content <> '' THEN json_of_text(text_of(json_of_repr(tool_message.content))) END AS observation,
    CASE WHEN tool_message.status <> '' THEN TRUE END AS result_failed,
    -- Where content is off, or the framework kept it, the requested calls are still known.
    CASE WHEN operation_name = 'chat' AND messages(a."gen_ai.output.messages") IS NULL AND tool_name IS NOT NULL
        THEN messages(json_array(json_object('role', 'assistant', 'parts', list_transform(names, lambda n, i:
            json_object('type', 'tool_call', 'name', n, 'id', ids[i], 'arguments', given[i]))))) END AS output_messages,
    -- Anthropic's and Bedrock's own count, which leaves out what the cache holds.
    CASE WHEN scope_name IN ('openlit.instrumentation.anthropic', 'openlit.instrumentation.bedrock') THEN count_of(a."gen_ai.usage.input_tokens")
        + coalesce(count_of(a."gen_ai.usage.cache_read.input_tokens"), 0) + coalesce(count_of(a."gen_ai.usage.cache_creation.input_tokens"), 0) END AS input_tokens
FROM calls
