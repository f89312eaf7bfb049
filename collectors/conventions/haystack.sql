/* +++
name       = "haystack"
rank       = 190
detects    = "span names haystack.* with haystack.* keys; the scope is the application's"
where      = '''
    starts_with(name, 'haystack.') AND openinference_kind IS NULL AND operation_name IS NULL
    AND (attribute_keys LIKE '%"haystack.%' OR name IN ('haystack.tracing.auto_enable', 'haystack.agent.step.llm'))
'''
version    = "haystack-ai 2.31 and 3.4, haystack.tracing with the OpenTelemetryTracer"
references = [
    "haystack-ai 3.4.1, haystack/components/agents/{agent,tool_calling}.py, haystack/components/generators/utils.py",
    "haystack-ai 2.31.0, haystack/components/agents/agent.py, haystack/core/pipeline/base.py",
]
+++ */
WITH found AS (
    SELECT trace_id, span_id, parent_span_id, name, status_code, status_message, error_type, from_json(attributes, '{
        "haystack.component.name": "VARCHAR", "haystack.component.type": "VARCHAR",
        "haystack.component.input": "VARCHAR", "haystack.component.output": "VARCHAR",
        "haystack.agent.input": "VARCHAR", "haystack.agent.output": "VARCHAR", "haystack.agent.tools": "VARCHAR",
        "haystack.agent.step.llm.input": "VARCHAR", "haystack.agent.step.llm.output": "VARCHAR",
        "haystack.tool.name": "VARCHAR", "haystack.tool.error": "JSON",
        "haystack.agent.step.tool.input": "VARCHAR", "haystack.agent.step.tool.output": "VARCHAR",
        "session.id": "VARCHAR", "user.id": "VARCHAR"
    }') AS a
    FROM candidates
),
kinds AS (
    SELECT *, CASE
        WHEN name = 'haystack.tracing.auto_enable' THEN 'drop'
        WHEN name = 'haystack.pipeline.run' OR name = 'haystack.async_pipeline.run' THEN 'workflow'
        WHEN name = 'haystack.agent.run' THEN 'agent'
        WHEN name = 'haystack.agent.step.llm' OR name = 'haystack.chat_generator.run' THEN 'model'
        WHEN name = 'haystack.agent.step.tool' THEN 'tool'
        WHEN name <> 'haystack.component.run' THEN 'other'
        WHEN regexp_matches(a."haystack.component.type", 'Generator$') AND NOT regexp_matches(a."haystack.component.type", 'ImageGenerator$') THEN 'model'
        WHEN regexp_matches(a."haystack.component.type", '(?:Retriever|Embedder|Ranker)$') THEN 'retrieval'
        ELSE 'other' END AS kind,
        coalesce(a."haystack.agent.step.llm.input", a."haystack.agent.input", a."haystack.component.input", a."haystack.agent.step.tool.input") AS given,
        coalesce(a."haystack.agent.step.llm.output", a."haystack.agent.output", a."haystack.component.output", a."haystack.agent.step.tool.output") AS got
    FROM found
),
-- A tool whose function is local cannot be serialised, and makes the whole value a Python repr.
decoded_values AS (
    SELECT *, CASE WHEN json_type(json_of_text(given)) = 'VARCHAR' THEN coalesce(json_of_repr(given), json_of_text(given)) ELSE json_of_text(given) END AS input,
        CASE WHEN json_type(json_of_text(got)) = 'VARCHAR' AND kind <> 'tool' THEN json_of_repr(got) ELSE json_of_text(got) END AS output,
        coalesce(a."haystack.tool.error" ->> '$' = 'true', FALSE) AS tool_failed
    FROM kinds WHERE kind IN ('model', 'agent', 'tool')
),
contents AS (
    SELECT trace_id, span_id, input, output, tool_failed,
        coalesce(messages(input -> '$.messages'), messages(to_json([json_object('role', 'user', 'content', input -> '$.prompt')]))) AS asked,
        -- The older generators answer with texts, and tell what they cost beside them.
        CASE WHEN json_type(output, '$.replies[0]') = 'VARCHAR' THEN messages(to_json([json_object('role', 'assistant', 'content', output -> '$.replies[0]')]))
            ELSE messages(output -> '$.replies') END AS answered,
        messages(output -> '$.messages') AS conversation,
        coalesce(output -> '$.replies[0].meta', output -> '$.replies[0]._meta', output -> '$.meta[0]') AS meta,
        meta -> '$.usage' AS usage
    FROM decoded_values
)
SELECT
    k.trace_id, k.span_id, 'haystack' AS convention, kind, name,
    -- An agent has no name but that of its component in a pipeline.
    CASE WHEN a."haystack.component.type" = 'Agent' THEN a."haystack.component.name" END AS agent_name,
    a."session.id" AS session_id, a."user.id" AS user_id,
    CASE WHEN kind = 'tool' THEN a."haystack.tool.name" END AS tool_name,
    CASE WHEN kind = 'tool' THEN input END AS arguments,
    CASE WHEN kind = 'tool' THEN coalesce(CASE WHEN tool_failed THEN output -> '$.error' END, result_value(output)) END AS observation,
    CASE WHEN kind = 'model' THEN meta ->> '$.model' END AS model,
    CASE WHEN kind = 'model' THEN meta ->> '$.id' END AS response_id,
    CASE WHEN kind = 'model' THEN asked END AS input_messages,
    CASE WHEN kind = 'model' THEN answered END AS output_messages,
    CASE WHEN kind = 'agent' THEN tool_definitions(coalesce(
            CASE WHEN json_type(json_of_text(a."haystack.agent.tools")) <> 'VARCHAR' THEN json_of_text(a."haystack.agent.tools") END, json_of_repr(a."haystack.agent.tools")))
        WHEN kind = 'model' THEN tool_definitions(input -> '$.tools') END AS offered_tools,
    CASE WHEN kind = 'model' THEN meta ->> '$.finish_reason' END AS finish_reason,
    -- A tool's error goes back to the model; the span's status stays unset.
    status_code = 'error' OR coalesce(tool_failed, FALSE) AS failed,
    coalesce(k.error_type, e.exception_type) AS error_type,
    coalesce(CASE WHEN tool_failed THEN output ->> '$.error' END, status_message, e.exception_message) AS error_message,
    CASE WHEN kind = 'model' THEN coalesce(count_of(usage -> '$.prompt_tokens'), count_of(usage -> '$.input_tokens')) END AS input_tokens,
    CASE WHEN kind = 'model' THEN coalesce(count_of(usage -> '$.completion_tokens'), count_of(usage -> '$.output_tokens')) END AS output_tokens,
    CASE WHEN kind = 'model' THEN coalesce(
        count_of(usage -> '$.prompt_tokens_details.cached_tokens'), count_of(usage -> '$.input_tokens_details.cached_tokens'),
        count_of(usage -> '$.cache_read_input_tokens')) END AS cached_input_tokens,
    CASE WHEN kind = 'model' THEN coalesce(count_of(usage -> '$.cache_creation_input_tokens'), count_of(usage -> '$.prompt_tokens_details.cache_write_tokens')) END AS cache_write_tokens,
    CASE WHEN kind = 'model' THEN coalesce(
        count_of(usage -> '$.completion_tokens_details.reasoning_tokens'), count_of(usage -> '$.output_tokens_details.reasoning_tokens')) END AS reasoning_tokens,
    CASE WHEN kind = 'agent' THEN parts_text(list_filter(from_json(asked, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]'), lambda m: m.role = 'user')[-1].parts, 'text') END AS user_input,
    CASE WHEN kind = 'agent' THEN parts_text(from_json(conversation, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]')[-1].parts, 'text') END AS final_response
FROM kinds AS k
LEFT JOIN contents AS c ON c.trace_id = k.trace_id AND c.span_id = k.span_id
LEFT JOIN span_exceptions AS e ON e.trace_id = k.trace_id AND e.span_id = k.span_id
