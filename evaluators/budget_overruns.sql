/* +++
name       = "budget_overruns"
returns    = "findings"
scope      = "trajectory"
severity   = "error"
question   = "Did a run use more calls, tokens, money or time than its budget?"
reads      = ["steps", "trajectories", "budgets"]
limits     = "Calls by which a framework hands over or ends its loop (transfer_to_*, finish, final_answer) are no tool calls here. Money is what the price table and the spans say. Where tokens or cost stand only on an agent span, the step that crossed the line is unknown and the run's last step is named."
references = ["design.md, section 5, budget_overruns"]

[columns]
trajectory_id    = "run over its budget"
trace_id         = "trace of the step"
span_id          = "step that crossed the line"
kind             = "name of the budget, or not_evaluable"
severity         = "error; note for not_evaluable"
message          = "what was used, of what, where the line was crossed, what was spent after it"
related_span_ids = "steps after it"
tool_name        = "tool of the step, where it is a tool call"
used             = "what the run used in all, unit of the budget"
allowed          = "the limit, same unit"
crossing_step    = "step_index of the step"
spent_after      = "what the run used after that step, same unit"
budget           = "where the limit comes from: default, agent:NAME or task:GLOB"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
-- Calls by which a framework hands over or ends its loop do no work: some frameworks record them as tool calls, others do not.
WITH control AS (
    -- A filter behind the aggregate, for one before it would be asked of every step.
    SELECT coalesce(list(tool_name) FILTER (WHERE tool_role(tool_name) IN ('hand_off', 'final_answer', 'delegation')), []) AS tools
    FROM (SELECT DISTINCT tool_name FROM steps)
),
totals AS (
    SELECT
        t.trajectory_id, t.trace_id, t.start_time, t.unpriced_model_calls, t.tool_call_count, t.model_call_count,
        b.budget AS kind, b.allowed, b.source,
        CASE b.budget
            WHEN 'max_tool_calls' THEN t.tool_call_count - coalesce(len(list_filter(t.tools, lambda tool: list_contains(c.tools, tool))), 0)
            WHEN 'max_model_calls' THEN t.model_call_count
            WHEN 'max_tokens' THEN t.total_tokens
            WHEN 'max_cost_usd' THEN t.cost_usd
            WHEN 'max_duration_ms' THEN t.duration_ms
        END AS used
    FROM trajectories AS t
    JOIN budgets AS b USING (trajectory_id)
    CROSS JOIN control AS c
),
-- Exactly at the limit is fine. A sum of money carries the rounding of its parts: 0.1 + 0.2 is not over 0.3.
over AS (
    SELECT * FROM totals WHERE used > allowed + 1e-9 * greatest(allowed, 1e-3)
),
-- Only runs over a budget need their steps in order.
spent AS (
    SELECT
        o.trajectory_id, o.kind, o.allowed, s.trace_id, s.span_id, s.step_index, s.tool_name, s.model, s.start_time, s.end_time,
        CASE o.kind
            WHEN 'max_tool_calls' THEN CASE WHEN s.kind = 'tool' AND s.tool_ran IS DISTINCT FROM FALSE AND NOT coalesce(list_contains(c.tools, s.tool_name), FALSE) THEN 1 END
            WHEN 'max_model_calls' THEN CASE WHEN s.kind = 'model' THEN 1 END
            WHEN 'max_tokens' THEN CASE WHEN s.usage_source = 'own' THEN coalesce(s.input_tokens, 0) + coalesce(s.output_tokens, 0) END
            WHEN 'max_cost_usd' THEN CASE WHEN s.usage_source IS DISTINCT FROM 'aggregate' THEN s.cost_usd END
            -- Time runs on by the clock, whatever overlaps: the step's end, as time since the start of the run.
            WHEN 'max_duration_ms' THEN epoch_us(s.end_time) / 1000.0 - epoch_us(o.start_time) / 1000.0
        END AS amount
    FROM over AS o
    JOIN steps AS s USING (trajectory_id)
    CROSS JOIN control AS c
    WHERE s.step_index IS NOT NULL
),
running AS (
    SELECT
        *,
        CASE kind WHEN 'max_duration_ms' THEN amount
            ELSE sum(amount) OVER (PARTITION BY trajectory_id, kind ORDER BY step_index, span_id) END AS sum_so_far
    FROM spent
),
crossings AS (
    SELECT
        trajectory_id, kind,
        arg_min(
            {'trace_id': trace_id, 'span_id': span_id, 'step_index': step_index, 'tool_name': tool_name, 'model': model, 'sum_so_far': sum_so_far},
            (step_index, span_id)
        ) FILTER (WHERE sum_so_far > allowed) AS crossing,
        arg_max(
            {'trace_id': trace_id, 'span_id': span_id, 'step_index': step_index, 'tool_name': tool_name, 'model': model, 'sum_so_far': sum_so_far},
            (step_index, span_id)
        ) AS last_step
    FROM running
    GROUP BY trajectory_id, kind
),
followers AS (
    SELECT r.trajectory_id, r.kind, list_transform(list_sort(list({'i': r.step_index, 's': r.span_id})), lambda f: f.s) AS span_ids
    FROM running AS r
    JOIN crossings AS c USING (trajectory_id, kind)
    WHERE r.step_index > c.crossing.step_index AND r.amount > 0
    GROUP BY r.trajectory_id, r.kind
),
overruns AS (
    SELECT
        o.trajectory_id, o.kind, o.allowed, o.used, o.source, o.trace_id AS run_trace_id,
        c.crossing, coalesce(c.crossing, c.last_step) AS place,
        -- The part of the crossing step that lies beyond the line counts as overrun, not as spent after it.
        CASE WHEN c.crossing IS NOT NULL THEN greatest(0, o.used - c.crossing.sum_so_far) END AS spent_after,
        coalesce(f.span_ids, []) AS followers
    FROM over AS o
    LEFT JOIN crossings AS c USING (trajectory_id, kind)
    LEFT JOIN followers AS f USING (trajectory_id, kind)
),
-- A number with its unit, as a person writes it.
worded AS (
    SELECT *, list_transform([used, allowed, used - allowed, spent_after], lambda x: CASE kind
        WHEN 'max_cost_usd' THEN regexp_replace(format('{:.6f}', x::DOUBLE), '(\.\d\d\d*?)0+$', '\1') || ' USD'
        WHEN 'max_duration_ms' THEN format('{:.0f} ms', x::DOUBLE)
        ELSE format('{:d} {}{}', x::BIGINT, replace(regexp_extract(kind, '^max_(.*)s$', 1), '_', ' '), CASE WHEN x = 1 THEN '' ELSE 's' END)
    END) AS words
    FROM overruns
),
unmetered AS (
    SELECT
        trajectory_id,
        count(*) FILTER (WHERE kind = 'model' AND input_tokens IS NULL) * (count(*) FILTER (WHERE usage_source = 'aggregate') = 0)::BIGINT AS model_calls
    FROM steps
    GROUP BY trajectory_id
),
-- Runs in which no tool ran: whether that was seen.
toolless AS (
    SELECT
        trajectory_id,
        -- A refused call was recorded, though it did not run.
        coalesce(max(step_index) > min(step_index) FILTER (WHERE requested_tool_calls::VARCHAR <> '[]'), FALSE) AND NOT bool_or(kind = 'tool') AS asked_and_went_on,
        -- A reason such as "stop" says that no tool was asked for, even where the output was not captured.
        bool_or(kind = 'tool' OR (kind = 'model' AND (output_messages IS NOT NULL OR requested_tool_calls IS NOT NULL OR NOT regexp_matches(finish_reason, 'tool|function', 'i')))) AS seen
    FROM steps
    SEMI JOIN (SELECT trajectory_id FROM trajectories WHERE coalesce(tool_call_count, 0) = 0) USING (trajectory_id)
    GROUP BY trajectory_id
),
-- What the limit needs and the recording lacks; a known part that is over the limit alone is a finding all the same.
blind AS (
    SELECT
        t.trajectory_id, t.kind,
        CASE t.kind
            WHEN 'max_cost_usd' THEN CASE
                WHEN t.unpriced_model_calls > 0 THEN format('{:d} model call{} without a price', t.unpriced_model_calls, CASE WHEN t.unpriced_model_calls = 1 THEN '' ELSE 's' END)
                WHEN t.used IS NULL THEN 'no cost was recorded' END
            WHEN 'max_tokens' THEN CASE
                WHEN t.used IS NULL THEN 'no token counts were recorded'
                WHEN u.model_calls > 0 THEN format('{:d} model call{} without token counts', u.model_calls, CASE WHEN u.model_calls = 1 THEN '' ELSE 's' END) END
            WHEN 'max_duration_ms' THEN CASE WHEN t.used IS NULL THEN 'no duration is known' END
            WHEN 'max_tool_calls' THEN CASE
                WHEN t.tool_call_count > 0 THEN NULL
                WHEN n.asked_and_went_on THEN 'the model requested tool calls, and none was recorded'
                WHEN NOT coalesce(n.seen, FALSE) THEN 'neither a tool call nor the output of a model was recorded' END
            WHEN 'max_model_calls' THEN CASE WHEN t.used = 0 THEN 'no model call was recorded' END
        END AS reason
    FROM totals AS t
    LEFT JOIN unmetered AS u USING (trajectory_id)
    LEFT JOIN toolless AS n USING (trajectory_id)
    ANTI JOIN over AS o ON o.trajectory_id = t.trajectory_id AND o.kind = t.kind
    UNION ALL
    SELECT trajectory_id, 'no_rule', 'no rule for this run: [budgets] in agenttrace.toml'
    FROM trajectories
    ANTI JOIN budgets USING (trajectory_id)
)
SELECT
    w.trajectory_id, coalesce(w.place.trace_id, w.run_trace_id) AS trace_id, w.place.span_id AS span_id, w.kind, 'error' AS severity,
    format('the run used {}, {} more than the {} allowed ({})', w.words[1], w.words[3], w.words[2], w.source)
        || CASE WHEN w.crossing IS NULL THEN '; the step that crossed the line is not known'
            ELSE format('; step {:d}{} crossed the line', w.crossing.step_index,
                CASE WHEN w.crossing.tool_name IS NOT NULL THEN ' (' || w.crossing.tool_name || ')' WHEN w.crossing.model IS NOT NULL THEN ' (' || w.crossing.model || ')' ELSE '' END)
                || CASE WHEN w.spent_after > 0 THEN ', and ' || w.words[4] || ' followed it' ELSE ', and nothing followed it' END
        END AS message,
    w.followers AS related_span_ids, w.place.tool_name AS tool_name,
    w.used::DOUBLE AS used, w.allowed AS allowed, w.crossing.step_index AS crossing_step, w.spent_after::DOUBLE AS spent_after,
    w.source AS budget, NULL::JSON AS evidence
FROM worded AS w
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], NULL, NULL, NULL, NULL, NULL, NULL, json_object('kind', kind)
FROM blind
WHERE reason IS NOT NULL
ORDER BY trajectory_id, kind, span_id, message, evidence
