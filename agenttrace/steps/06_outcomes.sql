-- What became of each tool call and model call: status, effect, whether the tool ran, whether it can change the world.
-- The closed lists come from vocabulary.toml as variables; `tool_rules` holds the user's rules per tool.

CREATE OR REPLACE TEMP MACRO http_code(txt) AS CASE WHEN TRY_CAST(txt AS INTEGER) BETWEEN 400 AND 599 THEN txt END;
CREATE OR REPLACE TEMP MACRO http_failure(j) AS
    http_code(coalesce(j ->> '$.status_code', j ->> '$.statusCode', j ->> '$.http_status', j ->> '$.status'));

-- Rule 6: a result that says itself that it failed, although the span may be OK.
CREATE OR REPLACE TEMP MACRO says_failed(j) AS
    CASE json_type(j)
        -- An exception's class, or an HTTP status, as tools write them that catch what they raise.
        WHEN 'VARCHAR' THEN regexp_matches(j ->> '$', '^\s*(?:Error|ERROR|error|(?:[a-z_.]+\.)?[A-Z]\w*(?:Error|Exception))\s*[:(]')
            -- What CrewAI, smolagents and Haystack answer to the model, which a model call's own instrumentation records without their flags.
            OR regexp_matches(j ->> '$', '^(?:Error:?\s+)?(?:Error executing tool\b[^\n]*:|Failed to invoke Tool `)')
            OR regexp_matches(j ->> '$', '^\s*(?:HTTP(?:/[\d.]+)?|Request failed with status code)\s*:?\s*[45]\d\d\b', 'i')
            OR regexp_matches(left(j ->> '$', 500), getvariable('opaque_pattern'), 'i')
        WHEN 'OBJECT' THEN
            coalesce(j ->> '$.isError' = 'true', FALSE)
            OR coalesce(json_type(j, '$.error') NOT IN ('NULL') AND lower(j ->> '$.error') NOT IN ('', 'false', '0', '{}', '[]', 'none', 'null'), FALSE)
            OR coalesce(lower(j ->> '$.status') IN ('error', 'failed'), FALSE)
            OR coalesce(j ->> '$.success' = 'false' OR j ->> '$.ok' = 'false', FALSE)
            OR http_failure(j) IS NOT NULL
        ELSE FALSE
    END;

-- The reason that a failed result gives, after its HTTP status or code.
CREATE OR REPLACE TEMP MACRO failure_text(j) AS
    CASE json_type(j) WHEN 'OBJECT' THEN concat_ws(' ', http_failure(j), coalesce(
        CASE WHEN json_type(j, '$.error') = 'OBJECT' THEN nullif(concat_ws(' ',
            coalesce(j ->> '$.error.status_code', j ->> '$.error.status', j ->> '$.error.code'), j ->> '$.error.type', j ->> '$.error.message'), '') END,
        CASE WHEN lower(j ->> '$.error') NOT IN ('true', 'false', '', 'none') THEN j ->> '$.error' END,
        j ->> '$.message', j ->> '$.detail', json_extract_string(j, '$.content[0].text'), j::VARCHAR))
    ELSE j ->> '$' END;

CREATE OR REPLACE TEMP MACRO is_type(error_type, list_name) AS
    list_contains(getvariable(list_name), regexp_extract(error_type, '([A-Za-z_0-9]+)\W*$', 1));
CREATE OR REPLACE TEMP MACRO is_known_type(error_type) AS
    is_type(error_type, 'timeout_types') OR is_type(error_type, 'refused_types')
    OR is_type(error_type, 'connection_lost_types') OR is_type(error_type, 'server_error_types');
-- An error type may be an exception's class, an HTTP status or a code in words (DEADLINE_EXCEEDED).
CREATE OR REPLACE TEMP MACRO says(pattern_name, txt) AS
    coalesce(regexp_matches(left(txt, 1000), getvariable(pattern_name), 'i'), FALSE);
CREATE OR REPLACE TEMP MACRO is_of(types_name, pattern_name, error_type) AS
    coalesce(is_type(error_type, types_name), FALSE) OR says(pattern_name, replace(error_type, '_', ' '));
CREATE OR REPLACE TEMP MACRO is_timeout(error_type, txt) AS
    is_of('timeout_types', 'timeout_pattern', error_type)
    OR (says('timeout_pattern', txt) AND NOT says('timeout_except_pattern', txt));
CREATE OR REPLACE TEMP MACRO is_cancelled(error_type) AS
    coalesce(regexp_extract(error_type, '([A-Za-z_0-9]+)\W*$', 1) IN ('CancelledError', 'AbortError', 'GeneratorExit', 'CANCELLED', 'cancelled'), FALSE);

-- Words of a tool's name: place_order, place-order, placeOrder, orders.place.
CREATE OR REPLACE TEMP MACRO name_words(tool) AS
    string_split_regex(lower(regexp_replace(tool, '([a-z0-9])([A-Z])', '\1_\2', 'g')), '[^a-z0-9]+');
CREATE OR REPLACE TEMP MACRO mutability_of_verb(verb, last_word) AS
    CASE
        WHEN list_contains(getvariable('verb_nouns'), verb) AND list_contains(getvariable('reading_ends'), last_word) THEN 'read_only'
        WHEN list_contains(getvariable('mutating_verbs'), verb) THEN 'mutating'
        WHEN list_contains(getvariable('idempotent_verbs'), verb) THEN 'idempotent'
        WHEN list_contains(getvariable('read_only_verbs'), verb) THEN 'read_only'
    END;

-- The tools offered at a call.
CREATE OR REPLACE TEMP TABLE offered AS
    SELECT trajectory_id, trace_id, span_id, list_transform(from_json(offered_tools, '["JSON"]'), lambda t: t ->> '$.name') AS names
    FROM turns WHERE offered_tools IS NOT NULL;

-- One row per tool call: the executions that have a span, and the requests whose result stands only in messages.
CREATE OR REPLACE TEMP TABLE called AS
WITH tool_names AS (
    SELECT DISTINCT trajectory_id, name_key FROM executions
),
calls AS (
    SELECT e.trajectory_id, e.trace_id, e.span_id, coalesce(m.origin, 'span') AS origin,
        -- The name that the model knows.
        CASE WHEN q.name_key = e.name_key THEN q.name ELSE e.tool_name END AS tool_name, l.turn_span_id, q.pos,
        -- The model's own id: a framework may number its executions itself.
        coalesce(q.id, m.tool_call_id) AS tool_call_id,
        CASE WHEN json_type(m.arguments) = 'OBJECT' OR q.arguments IS NULL THEN m.arguments ELSE q.arguments END AS arguments,
        m.arguments_hash, coalesce(m.observation, a.response) AS observation, a.response,
        coalesce(m.result_failed, a.failed, FALSE) AS result_failed,
        coalesce(m.failed, FALSE) AS span_failed, coalesce(m.cancelled, FALSE) AS cancelled, m.error_type, m.error_bases, m.error_message,
        m.mutability, m.mutability_source, m.idempotency_key, m.tool_ran, e.started, e.ended, FALSE AS has_spans
    FROM executions AS e
    JOIN merged AS m USING (trace_id, span_id)
    LEFT JOIN links AS l USING (trace_id, span_id)
    LEFT JOIN requests AS q ON q.trace_id = l.trace_id AND q.turn_span_id = l.turn_span_id AND q.pos = l.pos
    LEFT JOIN answered AS a ON a.trace_id = l.trace_id AND a.turn_span_id = l.turn_span_id AND a.pos = l.pos
    UNION ALL
    SELECT q.trajectory_id, q.trace_id, q.turn_span_id || '#' || q.pos, 'message', q.name, q.turn_span_id, q.pos,
        q.id, q.arguments, NULL, a.response, a.response, coalesce(a.failed, FALSE), FALSE, FALSE, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, coalesce(q.ended, q.started), a.read_at, n.name_key IS NOT NULL
    FROM requests AS q
    JOIN answered AS a ON a.trace_id = q.trace_id AND a.turn_span_id = q.turn_span_id AND a.pos = q.pos
    ANTI JOIN links AS l ON l.trace_id = q.trace_id AND l.turn_span_id = q.turn_span_id AND l.pos = q.pos
    LEFT JOIN tool_names AS n ON n.trajectory_id = q.trajectory_id AND n.name_key = q.name_key
),
-- A call without a request of its own goes by all tools that the run's model calls were offered.
run_offers AS (
    SELECT trajectory_id, list_sort(list_distinct(flatten(list(names)))) AS names FROM offered GROUP BY trajectory_id
),
rules AS (
    SELECT tool_name, bool_or(off) AS off, list(pattern ORDER BY pattern) FILTER (WHERE pattern IS NOT NULL) AS patterns
    FROM (SELECT DISTINCT tool_name FROM calls) JOIN tool_rules ON tool_name GLOB tool
    GROUP BY tool_name
),
judged AS (
    SELECT c.*, CASE WHEN c.turn_span_id IS NULL THEN a.names ELSE o.names END AS offered_names,
        coalesce(NOT list_contains(CASE WHEN c.turn_span_id IS NULL THEN a.names ELSE o.names END, c.tool_name), FALSE) AS not_offered,
        NOT coalesce(r.off, FALSE) AND (
            -- What the model received may say it although what the span kept does not.
            c.result_failed OR list_contains(list_transform([c.observation, CASE WHEN c.response <> c.observation THEN c.response END], lambda j: says_failed(j)), TRUE)
            OR coalesce(len(list_filter(r.patterns, lambda p: regexp_matches(text_of(c.observation), p))) > 0, FALSE)
            -- Without a span, the text that the model got is all there is of an exception.
            OR (c.origin = 'message' AND coalesce(regexp_matches(text_of(c.observation), '^\s*(?:[a-z_.]+\.)?[A-Z]\w*(?:Error|Exception|Timeout)\s*[:(]'), FALSE))
        ) AS result_says_failed
    FROM calls AS c
    LEFT JOIN offered AS o ON o.trace_id = c.trace_id AND o.span_id = c.turn_span_id
    LEFT JOIN run_offers AS a ON a.trajectory_id = c.trajectory_id
    LEFT JOIN rules AS r ON r.tool_name = c.tool_name
)
SELECT *, result_says_failed OR span_failed OR cancelled OR tool_ran IS FALSE OR origin = 'message' OR (origin = 'span' AND ended IS NULL) AS in_doubt
FROM judged;

-- All other calls ran and succeeded.
CREATE OR REPLACE TEMP TABLE doubts (
    trace_id VARCHAR, span_id VARCHAR, tool_ran BOOLEAN, status VARCHAR, effect_reason VARCHAR, error_type VARCHAR, error_message VARCHAR, error_source VARCHAR);

-- if EXISTS (FROM called WHERE in_doubt)
INSERT INTO doubts
WITH failures AS (
    SELECT *, failure_text(observation) AS result_text FROM called WHERE in_doubt
),
worded AS (
    SELECT *, concat_ws(' ', error_message, result_text) AS words FROM failures
),
ran AS (
    SELECT *,
        CASE
            WHEN tool_ran IS NOT NULL THEN tool_ran
            -- A refusal needs the runtime's words, and that the tool was not offered; where the offers are not known, that the words name it.
            WHEN (not_offered OR (offered_names IS NULL AND contains(lower(words), lower(tool_name))))
                AND says('unknown_tool_pattern', left(words, 500))
                AND (span_failed OR origin = 'message' OR result_says_failed) THEN FALSE
            WHEN origin = 'message' AND not_offered AND result_says_failed THEN FALSE
            -- The tool has spans in this run and none for this request: the runtime answered for it.
            WHEN origin = 'message' AND has_spans THEN FALSE
            ELSE TRUE
        END AS ran,
        coalesce(error_message, CASE WHEN span_failed OR result_says_failed THEN result_text END) AS reason
    FROM worded
),
-- The exception's class, its bases and the class that the text begins with: the first that a list knows decides, for a class of
-- the user's own and a framework's wrapper say nothing.
texts AS (
    SELECT *, CASE WHEN span_failed OR result_says_failed
        THEN nullif(regexp_extract(result_text, '^\s*(?:Error:?\s+)?(?:[a-z_.]+\.)?([A-Z]\w*(?:Error|Exception|Timeout))\b', 1), '') END AS text_type
    FROM ran
),
types AS (
    SELECT *, coalesce(
        list_filter(list_concat([error_type], from_json(error_bases, '["VARCHAR"]'), [text_type]), lambda t: is_known_type(t))[1],
        error_type, text_type) AS known_type
    FROM texts
),
statuses AS (
    SELECT *,
        coalesce(error_type, text_type) AS failure_type,
        CASE
            -- An answer from a cache: the producer says that nothing ran and that nothing changed.
            WHEN NOT ran AND NOT (tool_ran IS FALSE AND NOT span_failed AND coalesce(mutability = 'read_only' AND mutability_source = 'span', FALSE)) THEN 'error'
            WHEN origin = 'span' AND ended IS NULL THEN 'unfinished'
            WHEN cancelled OR (span_failed AND is_cancelled(error_type)) THEN 'cancelled'
            WHEN (span_failed OR result_says_failed)
                AND (is_timeout(known_type, error_message) OR is_timeout(NULL, result_text)) THEN 'timeout'
            WHEN span_failed OR result_says_failed THEN 'error'
            ELSE 'ok'
        END AS status
    FROM types
),
reasons AS (
    SELECT *, CASE
        WHEN NOT ran THEN CASE WHEN says('unknown_tool_pattern', left(concat_ws(' ', failure_type, words), 500)) THEN 'unknown_tool' END
        WHEN status IN ('timeout', 'unfinished', 'cancelled') THEN status
        WHEN status = 'ok' THEN NULL
        -- What the type says goes before words, and words that the outcome is open before words of a refusal.
        WHEN is_of('refused_types', 'refused_pattern', known_type) THEN NULL
        WHEN is_of('connection_lost_types', 'connection_lost_pattern', known_type) THEN 'connection_lost'
        WHEN is_of('server_error_types', 'server_error_pattern', known_type) THEN 'server_error'
        WHEN says('connection_lost_pattern', words) AND NOT says('connection_refused_pattern', words) THEN 'connection_lost'
        WHEN says('server_error_pattern', words) THEN 'server_error'
        WHEN says('refused_pattern', words) OR says('connection_refused_pattern', words) THEN NULL
        WHEN says('opaque_pattern', words) THEN 'opaque'
        -- The tool itself returned the failure, with a reason of its own: it did nothing. (MCP: error.type is then tool_error.)
        WHEN NOT span_failed OR error_type = 'tool_error' THEN NULL
        ELSE 'unspecific'
    END AS effect_reason
    FROM statuses
)
SELECT trace_id, span_id, ran, status, effect_reason,
    CASE WHEN status IN ('error', 'timeout', 'cancelled') THEN failure_type END AS error_type,
    CASE WHEN status IN ('error', 'timeout', 'cancelled') THEN reason END AS error_message,
    CASE WHEN status IN ('error', 'timeout') THEN CASE WHEN span_failed THEN 'span' ELSE 'result' END END AS error_source
FROM reasons;
-- end if

CREATE OR REPLACE TEMP TABLE tool_calls AS
WITH tools AS (
    SELECT tool_name, name_words(tool_name) AS words FROM (SELECT DISTINCT tool_name FROM called)
),
verbs AS (
    SELECT *, list_filter(words, lambda w: list_contains(getvariable('verbs'), w))[1] AS verb FROM tools
),
named AS (
    SELECT tool_name, mutability_of_verb(verb, words[-1]) AS mutability FROM verbs
),
-- The name itself goes before a glob, the longer glob before the shorter one.
configured AS (
    SELECT tool_name, arg_max(l.mutability, (l.tool = tool_name, length(l.tool), l.mutability)) AS mutability
    FROM tools JOIN tool_lists AS l ON tool_name GLOB l.tool GROUP BY tool_name
),
-- MCP's annotations, where the offered tools kept them. Only `true` is a statement: servers write `false` by default.
hints AS (
    SELECT trajectory_id, tool ->> '$.name' AS tool_name,
        CASE WHEN bool_or((tool ->> '$.annotations.readOnlyHint') = 'true') THEN 'read_only'
            WHEN bool_or((tool ->> '$.annotations.idempotentHint') = 'true') THEN 'idempotent' END AS mutability
    FROM (SELECT trajectory_id, unnest(from_json(offered_tools, '["JSON"]')) AS tool FROM turns WHERE offered_tools LIKE '%Hint"%')
    GROUP BY ALL
)
SELECT c.trajectory_id, c.trace_id, c.span_id, c.origin, c.tool_name, c.turn_span_id, c.pos, c.tool_call_id, c.arguments, c.arguments_hash, c.observation,
    coalesce(c.mutability, h.mutability, g.mutability, n.mutability) AS mutability,
    CASE WHEN c.mutability IS NOT NULL THEN c.mutability_source WHEN h.mutability IS NOT NULL THEN 'annotation'
        WHEN g.mutability IS NOT NULL THEN 'configuration' WHEN n.mutability IS NOT NULL THEN 'name' END AS mutability_source,
    c.idempotency_key, coalesce(d.tool_ran, TRUE) AS tool_ran, coalesce(d.status, 'ok') AS status, d.effect_reason,
    CASE WHEN NOT c.in_doubt THEN 'yes' WHEN d.effect_reason <> 'unknown_tool' THEN 'unknown' WHEN d.status = 'ok' AND d.tool_ran THEN 'yes' ELSE 'no' END AS effect,
    d.error_type, d.error_message, d.error_source, c.started, c.ended
FROM called AS c
LEFT JOIN doubts AS d USING (trace_id, span_id)
LEFT JOIN configured AS g ON g.tool_name = c.tool_name
LEFT JOIN named AS n ON n.tool_name = c.tool_name
LEFT JOIN hints AS h ON h.trajectory_id = c.trajectory_id AND h.tool_name = c.tool_name;
