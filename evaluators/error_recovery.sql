/* +++
name       = "error_recovery"
returns    = "findings"
scope      = "trajectory"
severity   = "warning"
question   = "Did the agent react to the errors of its tools?"
reads      = ["steps", "trajectories"]
limits     = "Whether an answer speaks of a failure is judged by words: one that admits it in none of them, or in a language of which failure_words has none (it has some German, French, Spanish, Italian and Dutch ones), is reported, and one that says 'not' of something else passes. Any later success of another tool that may change things counts as a way around. A service that fails three times for a while and is asked again is reported as repeated_error; the same failure once after each of several messages of the user is not. Where what the model was sent was not captured, these messages are not seen. Error texts that hold a time or a request id are never the same."
references = ["design.md, section 5, error_recovery"]

[params.failure_words]
type    = "VARCHAR"
default = '\b(?:no(?:t|ne|thing)?|never|cannot|but|however|although|though|instead|unfortunately|sorry|apolog\w+|regret\w*|unable|unavailable|un(?:successful|able|known|clear|certain)\w*|fail\w*|errors?|problems?|issues?|trouble|difficult\w*|invalid|incorrect|wrong|missing|time[sd]?[ -]?outs?|down|offline|unresponsive|blocked|locked|expired|exceed\w*|insufficient|crash\w*|broken|forbidden|unauthori[sz]ed|exit code|nobody|none|denied|refused|reject\w+|declin\w+|again|later|retry\w*|still|human|escalat\w+|please|need\w*|require\w*|must|leider|nicht|kein\w*|fehler\w*|d[ée]sol|pas|impossible|erreur|siento|lamentablemente|purtroppo|helaas|niet)\b|n[\x27’]t\b'
help    = "Regular expression (RE2, case makes no difference); an answer in which it is found speaks of the failure."

[columns]
trajectory_id    = "run with the error"
trace_id         = "its trace"
span_id          = "last failed call"
kind             = "ignored_error, repeated_error or not_evaluable"
severity         = "warning; note for not_evaluable"
message          = "what failed, how, and what the agent did not do"
related_span_ids = "earlier failed calls, in order"
tool_name        = "tool that failed"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
WITH errors AS (
    SELECT
        trajectory_id, trace_id, span_id, step_index, tool_name, mutability, effect, turn_span_id, status, error_message,
        coalesce(error_message, error_type, status) AS error, arguments_hash IS NULL AND arguments IS NULL AS unseen,
        -- Keys in any order. Redacted and cut arguments are known by the hash of the originals.
        coalesce(arguments_hash, list_sort(map_entries(TRY_CAST(arguments AS MAP(VARCHAR, JSON))))::VARCHAR, arguments::VARCHAR) AS argument_key
    FROM steps
    WHERE kind = 'tool' AND status IN ('error', 'timeout')
      -- A call that was refused for its name is an unknown tool, and another evaluator's.
      AND tool_ran IS DISTINCT FROM FALSE
),
successes AS (
    SELECT trajectory_id, step_index, tool_name, mutability, turn_span_id
    FROM steps
    SEMI JOIN errors USING (trajectory_id)
    WHERE kind = 'tool' AND status = 'ok'
),
-- The last success of each tool of a run, of what may change things, and of any tool; and beside it the last one of another
-- turn, for calls of one turn were requested together. An earlier one makes up for nothing that these two do not.
last_successes AS (
    SELECT trajectory_id, tool_name, changes, whose, max({'step': step_index, 'turn': turn_span_id}, 2) AS calls
    FROM (
        SELECT
            trajectory_id, tool_name, changes, turn_span_id, max(step_index) AS step_index,
            CASE grouping(tool_name, changes) WHEN 1 THEN 'same tool' WHEN 2 THEN 'another way' ELSE 'any' END AS whose
        FROM (SELECT *, mutability IS DISTINCT FROM 'read_only' AS changes FROM successes)
        GROUP BY GROUPING SETS ((trajectory_id, turn_span_id, tool_name), (trajectory_id, turn_span_id, changes), (trajectory_id, turn_span_id))
    )
    GROUP BY trajectory_id, tool_name, changes, whose
),
-- What may be a reaction: the tool itself, another way to the goal, or a look at what is there. After an error that
-- surely changed nothing, looking alone does not do what was asked.
recovered AS (
    SELECT e.trace_id, e.span_id
    FROM errors AS e
    JOIN last_successes AS s ON s.trajectory_id = e.trajectory_id
      AND CASE s.whose WHEN 'same tool' THEN s.tool_name = e.tool_name WHEN 'another way' THEN s.changes ELSE e.mutability = 'read_only' OR e.effect = 'unknown' END
    WHERE len(list_filter(s.calls, lambda c: c.step > e.step_index AND (c.turn = e.turn_span_id) IS NOT TRUE)) > 0
),
unrecovered AS (
    SELECT
        e.trajectory_id, e.tool_name,
        list_sort(list({'step_index': e.step_index, 'trace_id': e.trace_id, 'span_id': e.span_id, 'error': e.error})) AS calls
    FROM errors AS e
    ANTI JOIN recovered AS r ON r.trace_id = e.trace_id AND r.span_id = e.span_id
    GROUP BY e.trajectory_id, e.tool_name
),
-- What the agent said after it, to the user or beside a further call.
answers AS (
    SELECT
        trajectory_id, step_index,
        unnest(list_transform(
            list_filter(flatten(list_transform(from_json(output_messages, '[{"parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]'), lambda m: m.parts)),
                lambda p: p.type = 'text'),
            lambda p: p.content)) AS text
    FROM steps
    SEMI JOIN unrecovered USING (trajectory_id)
    UNION ALL
    SELECT trajectory_id, 2147483647, final_response FROM trajectories
),
answered AS (
    SELECT u.trajectory_id, u.tool_name, u.calls, bool_or(regexp_matches(a.text, $failure_words::VARCHAR, 'i')) AS mentioned
    FROM unrecovered AS u
    JOIN answers AS a ON a.trajectory_id = u.trajectory_id AND a.step_index > u.calls[-1].step_index
    GROUP BY u.trajectory_id, u.tool_name, u.calls
),
-- What the user asks for once more is no stubbornness, and what may have changed in between makes a new attempt of it.
attempts AS (
    SELECT
        e.*,
        len(list_filter(from_json(m.input_messages, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR"}]}]'),
            lambda x: x.role = 'user' AND list_contains(list_transform(x.parts, lambda p: p.type), 'text'))) AS user_messages
    FROM (
        SELECT *, count(change) OVER (PARTITION BY trajectory_id ORDER BY step_index) AS changes
        FROM (
            FROM errors
            UNION ALL BY NAME
            SELECT trajectory_id, step_index, 1 AS change FROM successes WHERE mutability IS DISTINCT FROM 'read_only'
        )
    ) AS e
    LEFT JOIN (SELECT trajectory_id, span_id, input_messages FROM steps SEMI JOIN errors USING (trajectory_id)) AS m
        ON m.trajectory_id = e.trajectory_id AND m.span_id = e.turn_span_id
),
-- A change is none of the attempts: whether its arguments were seen is NULL.
repeats AS (
    SELECT
        trajectory_id, tool_name,
        list_sort(list({'step_index': step_index, 'trace_id': trace_id, 'span_id': span_id, 'error': error})) AS calls
    FROM attempts
    WHERE NOT unseen
    GROUP BY trajectory_id, tool_name, argument_key, error, changes, user_messages
    HAVING count(*) >= 3
),
faults AS (
    SELECT
        trajectory_id, tool_name, calls, 'ignored_error' AS kind,
        tool_name || ' failed at step ' || calls[-1].step_index || ' (' || regexp_replace(left(calls[-1].error, 80), '\s+', ' ', 'g') || '), nothing made up for it, and no answer speaks of it' AS message
    FROM answered
    WHERE NOT mentioned
    UNION ALL
    SELECT
        trajectory_id, tool_name, calls, 'repeated_error',
        tool_name || ' failed ' || len(calls) || ' times with the same arguments and the same error (' || regexp_replace(left(calls[-1].error, 80), '\s+', ' ', 'g') || '), first at step ' || calls[1].step_index
    FROM repeats
)
SELECT
    trajectory_id, calls[-1].trace_id AS trace_id, calls[-1].span_id AS span_id, kind, 'warning' AS severity, message,
    list_transform(calls[:-2], lambda c: c.span_id) AS related_span_ids, tool_name, NULL::JSON AS evidence
FROM faults
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note',
    'no answer was captured: whether one speaks of the failed ' || left(tool_name, 80) || ' cannot be told', [], tool_name, json_object('kind', 'ignored_error')
FROM answered
WHERE mentioned IS NULL
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note',
    'arguments of ' || left(tool_name, 80) || ' were not captured: whether one call failed again and again cannot be told', [], tool_name, json_object('kind', 'repeated_error')
FROM errors
WHERE unseen
GROUP BY trajectory_id, tool_name
HAVING count(*) >= 3
ORDER BY trajectory_id, kind, span_id, message, evidence
