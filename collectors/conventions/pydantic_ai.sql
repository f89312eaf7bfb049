/* +++
name       = "pydantic_ai"
extends    = "gen_ai"
rank       = 40
detects    = "scope pydantic-ai"
where      = "scope_name = 'pydantic-ai'"
version    = "pydantic-ai 1.0 to 2.68, InstrumentationSettings versions 1 to 6"
references = ["pydantic-ai-slim 1.30.0 and 2.68.0, pydantic_ai/_instrumentation.py and models/instrumented.py"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, operation_name, tool_name, from_json(attributes, '{
        "agent_name": "VARCHAR", "final_result": "VARCHAR", "events": "JSON",
        "model_request_parameters": "JSON", "tool_arguments": "VARCHAR", "tool_response": "VARCHAR",
        "pydantic_ai.tool.failure_stage": "VARCHAR", "pydantic_ai.tool.deferral.name": "VARCHAR"
    }') AS a
    FROM candidates
),
kinds AS (
    SELECT *, CASE
        WHEN operation_name IS NOT NULL THEN NULL
        WHEN tool_name IS NOT NULL THEN 'tool'
        WHEN a.agent_name IS NOT NULL OR a.final_result IS NOT NULL THEN 'agent'
        ELSE 'other' END AS kind,
        from_json(decoded(a.events), '["JSON"]') AS events,
        decoded(a.model_request_parameters) AS parameters
    FROM found
),
-- Before 2.0 no attribute says that the arguments failed validation, but the exception comes out of the validator and not of the tool.
invalid AS (
    SELECT DISTINCT trace_id, span_id, TRUE AS is_invalid
    FROM span_events SEMI JOIN found USING (trace_id, span_id)
    WHERE event_name = 'exception' AND attributes ->> '$."exception.type"' LIKE '%ToolRetryError'
        AND regexp_matches(attributes ->> '$."exception.stacktrace"', '_tool_manager\.py", line \d+, in \w+\s+(?:\w+ = )?\w*validator\.validate_')
)
SELECT
    trace_id, span_id, 'pydantic_ai' AS convention, kind,
    a.agent_name AS agent_name,
    json_of_text(a.tool_arguments) AS arguments,
    json_of_text(a.tool_response) AS observation,
    -- Arguments that failed validation never reached the tool; a deferred call has not run yet.
    CASE WHEN a."pydantic_ai.tool.failure_stage" = 'validation' OR a."pydantic_ai.tool.deferral.name" IS NOT NULL OR is_invalid THEN FALSE END AS tool_ran,
    -- Version 1 keeps the messages as the events of OTel 1.28, in one attribute.
    messages(to_json(list_filter(events, lambda e: e ->> '$."event.name"' <> 'gen_ai.choice'))) AS input_messages,
    messages(to_json(list_filter(events, lambda e: e ->> '$."event.name"' = 'gen_ai.choice'))) AS output_messages,
    -- Two absent lists make an empty one, which would say that no tools were offered.
    CASE WHEN parameters IS NOT NULL THEN tool_definitions(to_json(list_concat(
        from_json(parameters -> '$.function_tools', '["JSON"]'), from_json(parameters -> '$.output_tools', '["JSON"]')))) END AS offered_tools,
    a.final_result AS final_response
FROM kinds LEFT JOIN invalid USING (trace_id, span_id)
