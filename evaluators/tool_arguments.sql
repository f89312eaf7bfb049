/* +++
name       = "tool_arguments"
returns    = "findings"
scope      = "trajectory"
severity   = "error"
question   = "Did the agent call its tools with the arguments that are expected and allowed?"
reads      = ["steps", "trajectories", "cases", "argument_errors"]
limits     = "Calls without effect are not judged. An argument that was not given breaks no limit. Numbers are compared to ten decimals and given as text count as numbers, so the codes \"007\" and \"7\" are equal. Any successful approval before the call is one, whatever it was for; an answer that denies it is known by English words and `approved: false`. A user's yes in the conversation is no approval here. `pattern`, `format`, `uniqueItems` and `contains` of a schema are not checked."
references = ["design.md, section 5, the rest of the catalogue", "JSON Schema draft 2020-12"]

[params.max]
type    = "MAP(VARCHAR, DOUBLE)"
default = {}
help    = "\"tool.argument\" to the largest value allowed; a dotted path leads into objects and through every element of lists."

[params.min]
type    = "MAP(VARCHAR, DOUBLE)"
default = {}
help    = "\"tool.argument\" to the smallest value allowed."

[params.requires_approval_above]
type    = "MAP(VARCHAR, DOUBLE)"
default = {}
help    = "\"tool.argument\" to the value above which an approval must have been given before the call."

[params.approvals]
type    = "VARCHAR[]"
default = ["*approv*", "request_confirmation*", "ask_human*", "human_input*"]
help    = "Globs of the tools that give an approval."

[params.schemas]
type    = "JSON"
default = {}
help    = "Tool to the JSON Schema of its arguments."

[columns]
trajectory_id    = "run"
trace_id         = "its trace"
span_id          = "tool call; of several reads that should have, the last"
kind             = "expected, limit, approval, schema or not_evaluable"
severity         = "error; note for not_evaluable"
message          = "the argument, its value, and what was expected"
related_span_ids = "for a read-only tool its other calls"
tool_name        = "tool"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
-- What the cases say of arguments: an object made of limits only is limits, anything else the value itself.
WITH stated AS MATERIALIZED (
    SELECT
        c.case_id, tool.key AS tool_name, argument.key AS path, argument.value AS wanted,
        json_keys(argument.value) <> [] AND list_has_all(['max', 'min', 'requires_approval_above'], json_keys(argument.value)) AS is_limit
    FROM cases AS c, json_each(c.expected_arguments::JSON) AS tool, json_each(tool.value) AS argument
),
configured AS (
    SELECT 'max' AS name, unnest(map_entries($max::MAP(VARCHAR, DOUBLE))) AS entry
    UNION ALL
    SELECT 'min', unnest(map_entries($min::MAP(VARCHAR, DOUBLE)))
    UNION ALL
    SELECT 'requires_approval_above', unnest(map_entries($requires_approval_above::MAP(VARCHAR, DOUBLE)))
),
bounds AS (
    SELECT
        name, NULL AS case_id, 'agenttrace.toml' AS source, entry.value AS bound,
        CASE WHEN contains(entry.key, '.') THEN entry.key
            ELSE error(format('evaluators.tool_arguments.{} has the key {}; expected "tool.argument"', name, entry.key)) END AS place
    FROM configured
    UNION ALL
    SELECT
        bound.key, s.case_id, 'case ' || left(s.case_id, 80), bound.value::DOUBLE, s.tool_name || '.' || s.path
    FROM stated AS s, json_each(s.wanted) AS bound
    WHERE s.is_limit
),
limits AS MATERIALIZED (
    SELECT *, CASE name WHEN 'requires_approval_above' THEN 'approval' ELSE 'limit' END AS kind FROM bounds
),
-- Tools that a rule is about; few names are compared, not every call.
named AS MATERIALIZED (
    SELECT tool_name, len(list_filter($approvals::VARCHAR[], lambda g: tool_name GLOB g)) > 0 AS approves
    FROM (SELECT DISTINCT tool_name FROM steps) AS n
    WHERE approves OR list_contains(json_keys($schemas::JSON), tool_name)
        OR EXISTS (FROM limits AS l WHERE starts_with(l.place, n.tool_name || '.'))
        OR tool_name IN (SELECT tool_name FROM stated)
),
calls AS MATERIALIZED (
    SELECT
        row_number() OVER () AS call, s.trajectory_id, s.trace_id, s.span_id, s.step_index, s.tool_name, s.turn_span_id, s.start_time, s.end_time, s.status,
        CASE WHEN n.approves THEN left(s.observation::VARCHAR, 2000) END AS observation,
        s.arguments, s.arguments_hash, s.mutability IS NOT DISTINCT FROM 'read_only' AS only_reads, t.task_id, n.approves
    FROM steps AS s
    JOIN named AS n ON n.tool_name = s.tool_name
    JOIN trajectories AS t ON t.trajectory_id = s.trajectory_id
    WHERE s.kind = 'tool' AND s.tool_ran IS DISTINCT FROM FALSE AND s.effect IS DISTINCT FROM 'no'
),
-- json_tree is given its document by a number: DuckDB repeats all that the function depends upon in each of its rows, and
-- a document of thousands of values would fill the memory.
nodes AS MATERIALIZED (
    SELECT c.call, node.fullkey, node.type, node.value, node.atom ->> '$' AS text
    FROM calls AS c, json_tree((SELECT d.arguments FROM calls AS d WHERE d.call = c.call)) AS node
),
limited AS (
    SELECT
        c.*, l.name, l.kind, l.source, l.bound, substr(l.place, length(c.tool_name) + 2) AS path
    FROM calls AS c
    JOIN limits AS l ON starts_with(l.place, c.tool_name || '.') AND coalesce(l.case_id = c.task_id, l.case_id IS NULL)
),
amounts AS (
    SELECT
        l.* EXCLUDE (arguments, observation), left(coalesce(leaf.text, leaf.value::VARCHAR), 40) AS words,
        TRY_CAST(leaf.text AS DOUBLE) AS number
    FROM limited AS l
    JOIN nodes AS leaf ON leaf.call = l.call AND replace(regexp_replace(leaf.fullkey, '^\$\.|\[\d+\]', '', 'g'), '"', '') = l.path
    -- A list is judged by its elements, and null is no value.
    WHERE leaf.type NOT IN ('ARRAY', 'NULL')
),
-- The first approval of one turn and time stands for all.
approving AS MATERIALIZED (
    SELECT trajectory_id, turn_span_id, end_time, min(step_index) AS step_index
    FROM calls
    WHERE status = 'ok' AND approves
      -- That the question was put is no answer, and an answer may be no.
      -- ("rejected": false is none.)
      AND NOT coalesce(regexp_matches(
          regexp_replace(observation, '(?:denied|rejected|declined|refused|disapproved|pending)\W{1,5}(?:false|null|0|\[\])', '', 'gi'),
          '^\W*(?:no|nope|nein)(?:[^\w ]|$)|(?:answer|approved|confirmed|response)\W{1,6}(?:false|no\b|0)|\bnot (?:been )?approved\b|\b(?:denied|rejected|declined|refused|disapproved|pending)\b', 'i'), FALSE)
    GROUP BY ALL
),
approved AS (
    SELECT a.trajectory_id, a.trace_id, a.span_id, a.path
    FROM amounts AS a
    SEMI JOIN approving AS y ON y.trajectory_id = a.trajectory_id AND y.step_index < a.step_index
        AND coalesce(y.turn_span_id <> a.turn_span_id, TRUE) AND coalesce(y.end_time <= a.start_time, TRUE)
),
broken AS (
    SELECT
        trajectory_id, trace_id, span_id, tool_name, kind, name, path, source, bound, string_agg(words, ', ' ORDER BY words) AS words
    FROM amounts
    ANTI JOIN approved USING (trajectory_id, trace_id, span_id, path)
    WHERE kind = 'approval' AND number > bound
    GROUP BY ALL
    UNION ALL
    SELECT trajectory_id, trace_id, span_id, tool_name, kind, name, path, source, bound, string_agg(words, ', ' ORDER BY words)
    FROM amounts
    WHERE kind = 'limit' AND CASE name WHEN 'max' THEN number > bound ELSE number < bound END
    GROUP BY ALL
),
-- One row per call of a tool for which its run's case expects arguments, and argument.
wanted AS (
    SELECT row_number() OVER (ORDER BY c.trajectory_id, c.step_index, c.trace_id, c.span_id, s.path) AS pair, c.*, s.case_id, s.path, s.wanted
    FROM calls AS c
    JOIN stated AS s ON s.case_id = c.task_id AND s.tool_name = c.tool_name
    WHERE NOT s.is_limit
),
-- Both sides of each comparison; a path leads through every element of a list, which then must all be right.
sides AS MATERIALIZED (
    SELECT row_number() OVER () AS side, pair, place, value, hash(value::VARCHAR) AS value_key
    FROM (
        SELECT pair, '' AS place, wanted AS value FROM wanted
        UNION ALL
        SELECT w.pair, node.fullkey, node.value
        FROM wanted AS w
        JOIN nodes AS node ON node.call = w.call AND replace(regexp_replace(regexp_replace(node.fullkey, '^\$\.', ''), '\[\d+\]\.', '.', 'g'), '"', '') = w.path
    )
),
-- One spelling of a value: keys in order, 1 and 1.0 and "1" alike, texts trimmed and in NFC.
forms AS (
    SELECT
        s.pair, s.place, any_value(s.value::VARCHAR) AS words,
        list_sort(list(leaf.fullkey || '=' || coalesce(TRY_CAST(leaf.atom ->> '$' AS DECIMAL(38, 10))::VARCHAR, nfc_normalize(trim(leaf.atom ->> '$')), leaf.type))) AS form
    FROM sides AS s, json_tree((SELECT d.value FROM sides AS d WHERE d.side = s.side)) AS leaf
    GROUP BY s.pair, s.place, s.value_key
),
given AS (
    SELECT
        f.pair, bool_and(f.form = e.form) AS is_right, string_agg(f.words, ', ' ORDER BY f.place) AS words,
        -- Redacted, or cut by the recorder.
        bool_or(regexp_matches(f.words, 'REDACTED|\[\+\d+ \w+\]')) AS is_hidden
    FROM forms AS f
    JOIN forms AS e ON e.pair = f.pair AND e.place = ''
    WHERE f.place <> ''
    GROUP BY f.pair
),
compared AS (
    SELECT
        w.* EXCLUDE (observation), left(g.words, 80) AS given_words, left(w.wanted::VARCHAR, 80) AS wanted_words,
        coalesce(g.is_right, FALSE) AS is_right,
        w.arguments IS NULL OR coalesce(g.is_hidden, w.arguments_hash IS NOT NULL) AS is_hidden
    FROM wanted AS w
    LEFT JOIN given AS g ON g.pair = w.pair
),
-- Reads may look around: one call with all that is expected will do.
reads AS (
    SELECT
        trajectory_id, case_id, tool_name, bool_or(is_right) AS is_right, bool_or(is_hidden) AS is_hidden,
        arg_max({'trace_id': trace_id, 'span_id': span_id}, step_index) AS last_call,
        list_transform(list_sort(list({'step': step_index, 'span_id': span_id}))[:-2], lambda o: o.span_id) AS others,
        max(expected) AS expected, count(*) AS n
    FROM (
        SELECT
            trajectory_id, trace_id, span_id, step_index, case_id, tool_name, bool_and(is_right) AS is_right, bool_or(is_hidden) AS is_hidden,
            left(string_agg(path || ' = ' || wanted_words, ', ' ORDER BY path), 160) AS expected
        FROM compared
        WHERE only_reads
        GROUP BY ALL
    )
    GROUP BY trajectory_id, case_id, tool_name
),
faults AS (
    SELECT e.trajectory_id, e.trace_id, e.span_id, e.tool_name, e.message
    FROM argument_errors AS e
    SEMI JOIN calls USING (trajectory_id, trace_id, span_id)
    WHERE e.source = 'configured'
),
rules AS (
    SELECT case_id, kind FROM limits
    UNION
    SELECT NULL, 'schema' WHERE json_keys($schemas::JSON) <> []
    UNION
    SELECT case_id, 'expected' FROM stated WHERE NOT is_limit
),
applying AS (
    SELECT t.trajectory_id, r.kind
    FROM trajectories AS t
    JOIN rules AS r ON coalesce(r.case_id = t.task_id, r.case_id IS NULL)
),
-- A run without a recorded tool call, unless its model asked for none, says nothing about arguments.
unseen AS (
    SELECT t.trajectory_id
    FROM (SELECT trajectory_id FROM trajectories WHERE coalesce(tool_call_count, 0) = 0) AS t
    LEFT JOIN steps AS s ON s.trajectory_id = t.trajectory_id
    GROUP BY t.trajectory_id
    HAVING NOT coalesce(bool_or(s.kind = 'tool') OR bool_and(s.requested_tool_calls::VARCHAR = '[]'), FALSE)
),
found AS (
    SELECT
        trajectory_id, trace_id, span_id, 'expected' AS kind, [] AS related, tool_name,
        format('{} was called with {}, expected {} (case {})', left(tool_name, 80), coalesce(left(path, 80) || ' = ' || given_words, 'no ' || left(path, 80)), wanted_words, left(case_id, 80)) AS message
    FROM compared
    WHERE NOT only_reads AND NOT is_hidden AND NOT is_right
    UNION ALL
    SELECT
        trajectory_id, last_call.trace_id, last_call.span_id, 'expected', others, tool_name,
        format('none of {} call(s) of {} had {} (case {})', n, left(tool_name, 80), expected, left(case_id, 80))
    FROM reads
    WHERE NOT is_right AND NOT is_hidden
    UNION ALL
    SELECT
        trajectory_id, trace_id, span_id, kind, [], tool_name,
        format('{}({}={}) ', left(tool_name, 80), left(path, 80), left(words, 80)) || CASE name
            WHEN 'max' THEN format('is over the limit of {} for {}', regexp_replace(bound::VARCHAR, '\.0$', ''), left(path, 80))
            WHEN 'min' THEN format('is under the limit of {} for {}', regexp_replace(bound::VARCHAR, '\.0$', ''), left(path, 80))
            ELSE format('needs an approval above {}, and none was given before it', regexp_replace(bound::VARCHAR, '\.0$', ''))
        END || ' (' || source || ')'
    FROM broken
    UNION ALL
    SELECT trajectory_id, trace_id, span_id, 'schema', [], tool_name, left(tool_name, 80) || ' was called with arguments that break its configured schema: ' || message
    FROM faults
),
blind AS (
    SELECT trajectory_id, kind AS concerned, 'no tool call was recorded, and the model is not known to have asked for none' AS reason
    FROM applying
    SEMI JOIN unseen USING (trajectory_id)
    UNION
    SELECT trajectory_id, kind, format('the arguments of {} were not captured', left(tool_name, 80))
    FROM limited
    WHERE arguments IS NULL
    UNION
    SELECT trajectory_id, kind, format('{} of {} is no number: {}', left(path, 80), left(tool_name, 80), words)
    FROM amounts
    WHERE number IS NULL
    UNION
    SELECT trajectory_id, 'schema', format('the arguments of {} were not captured', left(tool_name, 80))
    FROM calls
    WHERE arguments IS NULL AND list_contains(json_keys($schemas::JSON), tool_name)
    UNION
    SELECT trajectory_id, 'expected', format('{} of {} was not captured, or is redacted', left(path, 80), left(tool_name, 80))
    FROM compared
    WHERE is_hidden AND NOT only_reads
    UNION
    SELECT trajectory_id, 'expected', format('arguments of {} were not captured, or are redacted', left(tool_name, 80))
    FROM reads
    WHERE is_hidden AND NOT is_right
    UNION
    SELECT t.trajectory_id, 'expected', format('{} was never called with effect', left(s.tool_name, 80))
    FROM trajectories AS t
    JOIN stated AS s ON s.case_id = t.task_id
    ANTI JOIN calls AS c ON c.trajectory_id = t.trajectory_id AND c.tool_name = s.tool_name
    ANTI JOIN unseen AS u ON u.trajectory_id = t.trajectory_id
    WHERE NOT s.is_limit
    UNION
    SELECT trajectory_id, 'no_rule', 'no rule for this run: [evaluators.tool_arguments] in agenttrace.toml, or expected_arguments of its case'
    FROM trajectories
    ANTI JOIN applying USING (trajectory_id)
)
SELECT trajectory_id, trace_id, span_id, kind, 'error' AS severity, message, related AS related_span_ids, tool_name, NULL::JSON AS evidence
FROM found
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], NULL, json_object('kind', concerned)
FROM blind
ORDER BY trajectory_id, kind, span_id, message, evidence
