/* +++
name       = "unfinished_runs"
returns    = "findings"
scope      = "trajectory"
severity   = "warning"
question   = "Did the run come to its end, with an answer that is whole?"
reads      = ["steps", "trajectories"]
limits     = "Only complete runs are looked at. A run that pauses for an approval or whose tool runs elsewhere, so that a requested call was not executed, is not told from one that answers nothing, and passes. A tool whose result is the answer by design counts as no answer where the final response was not recorded, unless framework_tools names it. An empty answer passes. Reasons to stop are known by the names that providers give them."
references = ["design.md, section 4, rule 9", "OpenTelemetry GenAI conventions, gen_ai.response.finish_reasons"]

[params.framework_tools]
type    = "VARCHAR[]"
default = []
help    = "Names of tools that end a run by design (hand-off, final answer), beside the known ones."

[columns]
trajectory_id = "run that did not come to its end"
trace_id      = "trace of the step"
span_id       = "step that never ended, the last tool call, or the last model call"
kind          = "unfinished_step, no_answer, cut_off or not_evaluable"
severity      = "warning; note for not_evaluable"
message       = "what never ended, or how the run broke off"
tool_name     = "tool of the step, where it is a tool call"
evidence      = "JSON; for not_evaluable the kind concerned"
+++ */
WITH runs AS (
    SELECT trajectory_id, final_response FROM trajectories WHERE complete
),
-- Steps that never ended. An agent span is open whenever something below it is, and is named only where nothing is.
open_steps AS (
    SELECT
        trajectory_id, trace_id, span_id, tool_name,
        CASE kind WHEN 'tool' THEN tool_name WHEN 'agent' THEN 'agent ' || name ELSE 'a ' || kind || ' call' END
            || coalesce(' (step ' || step_index || ')', '') || ' never ended'
            || CASE WHEN kind = 'tool' AND mutability IS DISTINCT FROM 'read_only' THEN ': whether it took effect is not known' ELSE '' END AS message
    FROM steps
    SEMI JOIN runs USING (trajectory_id)
    -- Spans of other libraries, such as an HTTP stream that nobody closed, are not the agent's.
    WHERE status = 'unfinished' AND kind <> 'other'
    QUALIFY kind <> 'agent' OR row_number() OVER (PARTITION BY trajectory_id ORDER BY (kind = 'agent'), start_time DESC, span_id) = 1
),
-- How the run ended: its last step, and its last model call.
ends AS (
    SELECT
        trajectory_id,
        arg_max({'trace_id': trace_id, 'span_id': span_id, 'tool_name': tool_name, 'status': status}, step_index) AS step,
        arg_max({'trace_id': trace_id, 'span_id': span_id, 'seen': output_messages IS NOT NULL, 'finish_reason': finish_reason}, step_index)
            FILTER (WHERE kind = 'model') AS model
    FROM steps
    SEMI JOIN runs USING (trajectory_id)
    ANTI JOIN open_steps USING (trajectory_id)
    GROUP BY trajectory_id
),
breaks AS (
    SELECT trajectory_id, trace_id, span_id, 'unfinished_step' AS kind, message, tool_name FROM open_steps
    UNION ALL
    -- The result of the last call was never answered.
    SELECT
        e.trajectory_id, e.step.trace_id, e.step.span_id, 'no_answer',
        'the run ended after ' || left(e.step.tool_name, 80) || ' (' || e.step.status || '), and no answer followed', e.step.tool_name
    FROM ends AS e
    JOIN runs AS r USING (trajectory_id)
    WHERE r.final_response IS NULL AND e.model.seen AND e.step.tool_name IS NOT NULL
      AND NOT list_contains($framework_tools::VARCHAR[], e.step.tool_name)
      AND coalesce(tool_role(e.step.tool_name) NOT IN ('hand_off', 'final_answer', 'approval'), TRUE)
    UNION ALL
    SELECT
        trajectory_id, model.trace_id, model.span_id, 'cut_off',
        'the last model call stopped for the reason ' || left(model.finish_reason, 40) || ': its answer is cut off or withheld', NULL
    FROM ends
    WHERE regexp_matches(model.finish_reason, '^(?:length|max_(?:output_)?tokens|model_length|model_context_window_exceeded|content[_-]?filter(?:ed)?|safety|recitation|blocklist|prohibited_content|spii|refusal|guardrail_intervened)$', 'i')
),
blind AS (
    SELECT e.trajectory_id, 'no_answer' AS kind, 'neither the final response nor the output of the last model call was captured' AS reason
    FROM ends AS e
    JOIN runs AS r USING (trajectory_id)
    WHERE r.final_response IS NULL AND NOT e.model.seen
    UNION ALL
    SELECT trajectory_id, 'cut_off', 'why the last model call stopped was not recorded'
    FROM ends
    WHERE model IS NOT NULL AND model.finish_reason IS NULL
)
SELECT trajectory_id, trace_id, span_id, kind, 'warning' AS severity, message, tool_name, NULL::JSON AS evidence
FROM breaks
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, NULL, json_object('kind', kind)
FROM blind
ORDER BY trajectory_id, kind, span_id, message, evidence
