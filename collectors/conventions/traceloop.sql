/* +++
name       = "traceloop"
extends    = "gen_ai"
rank       = 130
detects    = "traceloop.* keys, llm.request.type, or messages flattened under gen_ai.prompt.0"
where      = '''
    attribute_keys LIKE '%"traceloop.%' OR attribute_keys LIKE '%"llm.request.type"%' OR attribute_keys LIKE '%"gen_ai.prompt.0.%'
    OR scope_name LIKE 'opentelemetry.instrumentation.mcp%' OR scope_name LIKE 'opentelemetry.instrumentation.crewai%'
'''
version    = "opentelemetry-semantic-conventions-ai 0.4 and 0.5 (OpenLLMetry up to 0.62), old and new keys"
references = ["traceloop/openllmetry v0.62.1, traceloop-sdk 0.62.4 traceloop/sdk/decorators/base.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, attributes, from_json(attributes, '{
        "traceloop.span.kind": "VARCHAR", "traceloop.entity.name": "VARCHAR", "llm.request.type": "VARCHAR",
        "traceloop.entity.input": "VARCHAR", "traceloop.entity.output": "VARCHAR",
        "traceloop.association.properties.session_id": "VARCHAR", "traceloop.association.properties.thread_id": "VARCHAR",
        "traceloop.association.properties.user_id": "VARCHAR", "traceloop.workflow.name": "VARCHAR",
        "gen_ai.tool.call.arguments": "VARCHAR", "gen_ai.tool.call.result": "VARCHAR", "gen_ai.task.status": "VARCHAR",
        "gen_ai.operation.name": "VARCHAR", "gen_ai.completion.0.finish_reason": "VARCHAR",
        "tool.name": "VARCHAR", "tool.arguments": "VARCHAR",
        "crewai.crew.result": "VARCHAR", "crewai.crew.tasks": "VARCHAR", "crewai.crew.usage_metrics": "VARCHAR"
    }') AS a
    FROM candidates
),
kinds AS (
    SELECT *, CASE
        -- CrewAI's tasks and crews say invoke_agent too.
        -- LlamaIndex's workflow step that calls a tool; the tool itself has a span only where it did not fail.
        WHEN a."traceloop.span.kind" = 'task' AND a."tool.name" IS NOT NULL AND a."tool.arguments" IS NOT NULL THEN 'tool'
        WHEN a."traceloop.span.kind" = 'task' THEN 'other'
        WHEN name = 'crewai.workflow' THEN 'workflow'
        WHEN a."traceloop.span.kind" IN ('workflow', 'agent', 'tool') THEN a."traceloop.span.kind"
        WHEN a."gen_ai.operation.name" IS NOT NULL THEN NULL
        WHEN a."llm.request.type" IN ('chat', 'completion') THEN 'model'
        WHEN a."llm.request.type" IN ('embedding', 'rerank') THEN 'retrieval' END AS kind,
        json_of_text(coalesce(a."gen_ai.tool.call.arguments", a."tool.arguments", a."traceloop.entity.input")) AS given,
        json_of_text(coalesce(a."gen_ai.tool.call.result", a."traceloop.entity.output")) AS got,
        coalesce(CASE WHEN json_exists(got, '$.tool_id') THEN got -> '$.tool_output' END, got) AS result,
        flattened_call(attributes, 'gen_ai.prompt', 'gen_ai.completion', 'llm.request.functions') AS call
    FROM found
)
SELECT
    trace_id, span_id, 'traceloop' AS convention, kind,
    CASE WHEN kind IN ('agent', 'workflow') THEN nullif(coalesce(a."traceloop.entity.name", a."traceloop.workflow.name"), '') END AS agent_name,
    coalesce(a."traceloop.association.properties.session_id", a."traceloop.association.properties.thread_id",
        -- Older versions keep LangChain's metadata in the input alone.
        CASE WHEN json_exists(given, '$.tags') THEN coalesce(given ->> '$.metadata.session_id', given ->> '$.metadata.thread_id') END) AS session_id,
    a."traceloop.association.properties.user_id" AS user_id,
    CASE WHEN kind = 'tool' THEN coalesce(a."tool.name", a."traceloop.entity.name") END AS tool_name,
    CASE WHEN kind = 'tool' THEN coalesce(got ->> '$.tool_id', given ->> '$.kwargs.tool_call_id', result ->> '$.output.kwargs.tool_call_id') END AS tool_call_id,
    CASE WHEN kind = 'tool' THEN call_arguments(given) END AS arguments,
    CASE WHEN kind = 'tool' THEN CASE
        -- The MCP instrumentation's envelope of a CallToolResult.
        WHEN json_type(result) = 'OBJECT' AND len(list_filter(json_keys(result), lambda k: k NOT IN ('result', 'is_error'))) = 0 AND json_exists(result, '$.result')
            THEN decoded(result -> '$.result')
        ELSE result_value(result) END END AS observation,
    CASE WHEN kind = 'tool' THEN result_failed(result) END AS result_failed,
    call.input AS input_messages,
    call.output AS output_messages,
    coalesce(call.tools,
        CASE WHEN name = 'tools/list.mcp' THEN tool_definitions(result -> '$.tools') END) AS offered_tools,
    nullif(a."gen_ai.completion.0.finish_reason", '') AS finish_reason,
    json_of_text(a."crewai.crew.tasks") ->> '$[0].description' AS user_input,
    captured(a."crewai.crew.result") AS final_response,
    -- The crew's sum, as a Python repr.
    count_of(json_of_repr(a."crewai.crew.usage_metrics") -> '$.prompt_tokens') AS input_tokens,
    count_of(json_of_repr(a."crewai.crew.usage_metrics") -> '$.completion_tokens') AS output_tokens,
    CASE WHEN a."gen_ai.task.status" = 'failure' THEN TRUE END AS failed
FROM kinds
