/* +++
name       = "openai_agents"
extends    = "gen_ai"
rank       = 215
detects    = "scope opentelemetry.instrumentation.openai_agents without traceloop.* keys (OpenLLMetry has the same scope)"
where      = "scope_name = 'opentelemetry.instrumentation.openai_agents' AND operation_name = 'chat'"
version    = "opentelemetry-instrumentation-openai-agents-v2 0.1"
references = ["opentelemetry-instrumentation-openai-agents-v2 0.1.0, opentelemetry/instrumentation/openai_agents/span_processor.py"]
+++ */
SELECT
    trace_id, span_id, 'openai_agents' AS convention,
    -- The answer's items are texts: the reprs of the SDK's objects, the requested calls among them.
    repr_messages(attributes -> '$."gen_ai.output.messages"') AS output_messages
FROM candidates
