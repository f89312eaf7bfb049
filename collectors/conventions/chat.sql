/* +++
name       = "chat"
extends    = "gen_ai"
rank       = 10
detects    = "scope agenttrace.transcript: chat transcripts that `agenttrace import` has turned into spans"
where      = "scope_name = 'agenttrace.transcript'"
version    = "OpenAI chat completions messages, with tool_calls or the older function_call"
references = ["OpenAI API reference, Chat Completions, the chat completion object", "agenttrace/collectors/transcripts.py"]
+++ */
SELECT
    trace_id, span_id, 'chat' AS convention, 'message' AS origin,
    -- A transcript without times keeps the order of its messages as the first nanoseconds of 1970.
    start_time_unix_nano >= 1_000_000_000_000_000 AS is_timed,
    -- An agent that speaks first was given nothing, which is known.
    CASE WHEN attributes ->> '$."gen_ai.input.messages"' = '[]' THEN '[]'::JSON END AS input_messages
FROM candidates
