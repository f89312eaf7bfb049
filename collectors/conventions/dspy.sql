/* +++
name       = "dspy"
extends    = "openinference"
rank       = 35
detects    = "DSPy's fields in a model's answer, [[ ## field ## ]] or JSON with next_tool_name, in the span of DSPy or of the SDK below it"
where      = "openinference_kind = 'LLM' AND (attributes LIKE '%[[ ## %' OR attributes LIKE '%next_tool_name%')"
version    = "openinference-instrumentation-dspy 0.1.48, dspy 3.4"
references = ["stanfordnlp/dspy, dspy/predict/react.py and dspy/adapters"]
+++ */
WITH found AS (
    SELECT trace_id, span_id, name, from_json(attributes, '{
        "llm.input_messages.0.message.content": "VARCHAR", "llm.output_messages.0.message.content": "VARCHAR"
    }') AS a
    FROM candidates
),
texts AS (
    SELECT *, a."llm.output_messages.0.message.content" AS answer, json_of_text(a."llm.output_messages.0.message.content") AS parsed,
        list_filter(list_transform(regexp_split_to_array(a."llm.output_messages.0.message.content", '\[\[ ## \w+ ## \]\]'), lambda t: trim(t, E' \n')), lambda t: t <> '') AS fields
    FROM found
),
calls AS (
    SELECT *,
        -- A reply that DSPy could not parse has still asked for its tool.
        coalesce(nullif(regexp_extract(answer, '\[\[ ## next_tool_name ## \]\]\s*(\S+)', 1), ''), parsed ->> '$.next_tool_name') AS tool,
        coalesce(json_of_text(nullif(regexp_extract(answer, '(?s)\[\[ ## next_tool_args ## \]\]\s*(.*?)\s*(?:\[\[ ## |$)', 1), '')), parsed -> '$.next_tool_args') AS arguments,
        coalesce(nullif(regexp_extract(answer, '(?s)\[\[ ## (?:next_thought|reasoning) ## \]\]\s*(.*?)\s*(?:\[\[ ## |$)', 1), ''), parsed ->> '$.next_thought') AS reasoning,
        regexp_extract_all(regexp_extract(a."llm.input_messages.0.message.content", 'next_tool_name` \(Literal\[(.*?)\]\)', 1), '''([^'']+)''', 1) AS offered
    FROM texts
)
SELECT
    trace_id, span_id, 'dspy' AS convention,
    messages(to_json([json_object('role', 'assistant', 'parts', list_concat(
        CASE WHEN reasoning IS NOT NULL THEN [json_object('type', 'reasoning', 'content', reasoning)] ELSE [] END,
        CASE WHEN tool IS NOT NULL THEN [json_object('type', 'tool_call', 'id', NULL, 'name', tool, 'arguments', arguments)]
            WHEN len(fields) > 0 THEN [json_object('type', 'text', 'content', fields[-1])] ELSE [] END))])) AS output_messages,
    CASE WHEN len(offered) > 0 THEN tool_definitions(to_json(offered)) END AS offered_tools,
    reasoning AS thought
FROM calls
WHERE answer IS NOT NULL
