/* +++
name       = "tool_order"
returns    = "findings"
scope      = "trajectory"
severity   = "error"
question   = "Did the agent call its tools in the order, and as often, as the rules say?"
reads      = ["steps", "trajectories"]
limits     = "One successful call of the first tool covers every later call of the second, whatever their arguments. What an earlier run of the session did does not count. A call that was refused without effect counts for `never` only. Where no turn is known, order is by the clocks of the machines that recorded the calls."
references = ["design.md, section 5, the rest of the catalogue; section 7, [evaluators.tool_order]"]

[params.before]
type    = "VARCHAR[][]"
default = []
help    = "Pairs [first, then] of tools or globs: first must have succeeded before then is asked for."

[params.exactly]
type    = "MAP(VARCHAR, BIGINT)"
default = {}
help    = "Tool or glob to how often it takes effect, in runs in which it does at all."

[params.required]
type    = "VARCHAR[]"
default = []
help    = "Tools or globs that every run must call with success."

[params.never]
type    = "VARCHAR[]"
default = []
help    = "Tools or globs that no run may call."

[columns]
trajectory_id    = "run"
trace_id         = "its trace"
span_id          = "call at fault; NULL for required"
kind             = "before, exactly, required, never or not_evaluable"
severity         = "error; note for not_evaluable"
message          = "what was called, when, and what the rule says"
related_span_ids = "other calls that the rule is about, in order; for before the first hundred"
tool_name        = "tool at fault; for required its name in the rule"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
WITH rules AS (
    SELECT 'before' AS kind, pair[2] AS tool, pair[1] AS first_tool, NULL::BIGINT AS times
    FROM (
        SELECT CASE WHEN len(pair) = 2 THEN pair
            ELSE error('evaluators.tool_order.before holds ' || pair::VARCHAR || '; expected pairs of two tools, [first, then]') END AS pair
        FROM (SELECT unnest($before::VARCHAR[][]) AS pair)
    )
    UNION
    SELECT 'exactly', entry.key, NULL, entry.value FROM (SELECT unnest(map_entries($exactly::MAP(VARCHAR, BIGINT))) AS entry)
    UNION
    SELECT 'required', unnest($required::VARCHAR[]), NULL, NULL
    UNION
    SELECT 'never', unnest($never::VARCHAR[]), NULL, NULL
),
-- Which tools a rule is about; few names are compared with globs, not every call.
named AS MATERIALIZED (
    SELECT n.tool_name, r.kind, r.tool, r.first_tool, r.times, n.tool_name GLOB r.tool AS is_meant, coalesce(n.tool_name GLOB r.first_tool, FALSE) AS is_first
    FROM (SELECT DISTINCT tool_name FROM steps) AS n
    JOIN rules AS r ON n.tool_name GLOB r.tool OR n.tool_name GLOB r.first_tool
),
calls AS MATERIALIZED (
    SELECT trajectory_id, trace_id, span_id, step_index, tool_name, turn_span_id, start_time, end_time, status, effect
    FROM steps
    SEMI JOIN named USING (tool_name)
    WHERE kind = 'tool' AND tool_ran IS DISTINCT FROM FALSE
),
-- The calls each rule is about. One without effect breaks no order and fulfils nothing; a tool that must never be called
-- must not be called in vain either.
ruled AS NOT MATERIALIZED (
    SELECT r.kind, r.tool, r.first_tool, r.times, c.*
    FROM named AS r
    JOIN calls AS c USING (tool_name)
    WHERE r.is_meant AND (r.kind = 'never' OR c.effect IS DISTINCT FROM 'no')
),
-- Calls of the first tool of a rule.
firsts AS NOT MATERIALIZED (
    SELECT r.first_tool, c.trajectory_id, c.step_index, c.span_id, c.turn_span_id, c.end_time, c.status
    FROM (SELECT DISTINCT first_tool, tool_name FROM named WHERE is_first) AS r
    JOIN calls AS c USING (tool_name)
),
-- Those that can answer for others, the first of one turn and time for all. Most runs have one at their beginning, which
-- answers for all that follow.
good AS (
    SELECT first_tool, trajectory_id, turn_span_id, end_time, min(step_index) AS step_index
    FROM firsts
    WHERE status = 'ok'
    GROUP BY ALL
),
earliest AS (
    SELECT first_tool, trajectory_id, arg_min({'turn': turn_span_id, 'ended': end_time, 'step': step_index}, step_index) AS call
    FROM good
    GROUP BY first_tool, trajectory_id
),
doubted AS (
    SELECT r.trajectory_id, r.trace_id, r.span_id, r.step_index, r.tool_name, r.first_tool, r.turn_span_id, r.start_time
    FROM ruled AS r
    LEFT JOIN earliest AS f USING (first_tool, trajectory_id)
    WHERE r.kind = 'before'
      AND (f.call.step < r.step_index AND coalesce(f.call.turn <> r.turn_span_id, TRUE) AND coalesce(f.call.ended <= r.start_time, TRUE)) IS NOT TRUE
),
too_early AS (
    SELECT r.trajectory_id, r.trace_id, r.span_id, r.step_index, r.tool_name, r.first_tool
    FROM doubted AS r
    -- The agent must have had the answer when it asked: a failed call gives none, and one of the same turn or one that was
    -- still running gives it too late.
    ANTI JOIN good AS f ON f.trajectory_id = r.trajectory_id AND f.first_tool = r.first_tool AND f.step_index < r.step_index
        AND coalesce(f.turn_span_id <> r.turn_span_id, TRUE) AND coalesce(f.end_time <= r.start_time, TRUE)
),
-- What there was of the first tool instead; of thousands of calls, the first hundred say it.
excuses AS (
    SELECT
        e.trajectory_id, e.trace_id, e.span_id, e.first_tool,
        list_sort(list({'step': f.step_index, 'span_id': f.span_id})) AS others,
        left(string_agg(format('step {} ({})', f.step_index, CASE WHEN f.status <> 'ok' THEN f.status WHEN f.step_index > e.step_index THEN 'later' ELSE 'not yet answered' END), ', ' ORDER BY f.step_index), 120) AS words
    FROM too_early AS e
    JOIN (
        FROM firsts SEMI JOIN too_early USING (trajectory_id, first_tool)
        QUALIFY row_number() OVER (PARTITION BY trajectory_id, first_tool ORDER BY step_index, span_id) <= 100
    ) AS f USING (trajectory_id, first_tool)
    GROUP BY e.trajectory_id, e.trace_id, e.span_id, e.first_tool
),
-- How often a tool took effect: surely, and at most. Only `exactly` has a number of times to compare with.
counts AS (
    SELECT
        kind, tool, times, trajectory_id, min(trace_id) AS trace_id,
        count(*) FILTER (WHERE effect = 'yes') AS surely, count(*) AS at_most, list({'step': step_index, 'span_id': span_id}) AS calls
    FROM ruled
    WHERE kind IN ('exactly', 'required')
    GROUP BY kind, tool, times, trajectory_id
),
odd_counts AS (
    SELECT * EXCLUDE (calls), list_sort(calls) AS others, left(array_to_string(list_transform(list_sort(calls), lambda c: c.step), ', '), 80) AS step_words
    FROM counts
    WHERE surely < at_most OR surely <> times
),
-- A run without a recorded tool call, unless its model asked for none, says nothing about what was called.
unseen AS (
    SELECT t.trajectory_id
    FROM (SELECT trajectory_id FROM trajectories WHERE coalesce(tool_call_count, 0) = 0) AS t
    LEFT JOIN steps AS s ON s.trajectory_id = t.trajectory_id
    GROUP BY t.trajectory_id
    HAVING NOT coalesce(bool_or(s.kind = 'tool') OR bool_and(s.requested_tool_calls::VARCHAR = '[]'), FALSE)
),
found AS (
    SELECT
        t.trajectory_id, t.trace_id, t.span_id, 'before' AS kind,
        format('{} (step {}) was called without a successful {} before it: {}', left(t.tool_name, 80), t.step_index, left(t.first_tool, 80), coalesce(e.words, 'there was none')) AS message,
        coalesce(list_transform(e.others, lambda o: o.span_id), []) AS related, t.tool_name
    FROM too_early AS t
    LEFT JOIN excuses AS e USING (trajectory_id, trace_id, span_id, first_tool)
    UNION ALL
    SELECT
        trajectory_id, trace_id, others[-1].span_id, 'exactly',
        format('{} took effect {} time(s), at step {}{}; expected exactly {}', left(tool, 80), surely, step_words,
            CASE WHEN at_most > surely THEN format(', {} of them perhaps not', at_most - surely) ELSE '' END, times),
        list_transform(others[:-2], lambda o: o.span_id), tool
    FROM odd_counts
    WHERE surely > times OR at_most < times
    UNION ALL
    SELECT t.trajectory_id, t.trace_id, NULL, 'required', left(r.tool, 80) || ' must be called in every run, and no call of it took effect', [], r.tool
    FROM trajectories AS t
    JOIN rules AS r ON r.kind = 'required'
    ANTI JOIN counts AS c ON c.tool = r.tool AND c.trajectory_id = t.trajectory_id
    ANTI JOIN unseen AS u ON u.trajectory_id = t.trajectory_id
    UNION ALL
    SELECT trajectory_id, trace_id, span_id, 'never', format('{} (step {}) was called, and the rule is never {}', left(tool_name, 80), step_index, left(tool, 80)), [], tool_name
    FROM ruled
    WHERE kind = 'never'
),
blind AS (
    SELECT u.trajectory_id, r.kind AS concerned, 'no tool call was recorded, and the model is not known to have asked for none' AS reason
    FROM unseen AS u
    CROSS JOIN rules AS r
    UNION
    SELECT trajectory_id, kind, format('whether all calls of {} took effect is not known (step {})', left(tool, 80), step_words)
    FROM odd_counts
    WHERE (surely <= times AND times <= at_most) OR (kind = 'required' AND surely = 0)
    UNION
    SELECT trajectory_id, 'no_rule', 'no rule for this run: [evaluators.tool_order] in agenttrace.toml'
    FROM trajectories
    WHERE NOT EXISTS (FROM rules)
)
SELECT trajectory_id, trace_id, span_id, kind, 'error' AS severity, message, related AS related_span_ids, tool_name, NULL::JSON AS evidence
FROM found
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], NULL, json_object('kind', concerned)
FROM blind
ORDER BY trajectory_id, kind, span_id, message, evidence
