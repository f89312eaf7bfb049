-- Small readers of JSON values. Message dialects and envelopes are Python's (agenttrace/sql_functions.py), callable from here.

-- A JSON string as its text, any other JSON value as JSON text.
CREATE OR REPLACE TEMP MACRO text_of(j) AS j ->> '$';

-- The provider's tokens, money and time, whatever JSON type the producer chose; anything else is not captured, nor what no provider counts:
-- less than nothing (-1 for unknown), more than 10^12, NaN and infinity, which would spoil every sum.
CREATE OR REPLACE TEMP MACRO count_of(j) AS CASE WHEN TRY_CAST(j ->> '$' AS BIGINT) BETWEEN 0 AND 1_000_000_000_000 THEN TRY_CAST(j ->> '$' AS BIGINT) END;
CREATE OR REPLACE TEMP MACRO number_of(j) AS CASE WHEN TRY_CAST(j ->> '$' AS DOUBLE) BETWEEN 0 AND 1e12 THEN TRY_CAST(j ->> '$' AS DOUBLE) END;

CREATE OR REPLACE TEMP MACRO utc_time(ns) AS make_timestamptz(ns // 1000);

-- The parts of all messages, in order: what a model call wrote, and the results in what it read.
CREATE OR REPLACE TEMP MACRO written_parts(j) AS
    flatten(list_transform(from_json(j, '[{"parts":[{"type":"VARCHAR","content":"VARCHAR","id":"VARCHAR","name":"VARCHAR","arguments":"JSON"}]}]'), lambda m: coalesce(m.parts, [])));
CREATE OR REPLACE TEMP MACRO read_results(j) AS
    flatten(list_transform(from_json(j, '[{"parts":[{"type":"VARCHAR","id":"VARCHAR","name":"VARCHAR","response":"JSON","is_error":"VARCHAR"}]}]'), lambda m:
        list_filter(coalesce(m.parts, []), lambda p: p.type = 'tool_call_response')));
CREATE OR REPLACE TEMP MACRO parts_text(parts, kind) AS
    nullif(array_to_string(list_transform(list_filter(parts, lambda p: p.type = kind), lambda p: p.content), chr(10)), '');
-- The text of the last message of the user that has one.
CREATE OR REPLACE TEMP MACRO user_text(j) AS
    parts_text(list_filter(from_json(j, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]'), lambda m:
        m.role = 'user' AND len(list_filter(m.parts, lambda p: p.type = 'text')) > 0)[-1].parts, 'text');

-- Tools whose span and whose definition are spelled differently: "Delegate work to coworker" is delegate_work_to_coworker.
CREATE OR REPLACE TEMP MACRO name_key(tool) AS regexp_replace(lower(tool), '[^\p{L}\p{N}]+', '_', 'g');
