/* +++
name       = "tool_hallucination"
returns    = "findings"
scope      = "session"
severity   = "error"
question   = "Did the agent call tools that do not exist, or claim calls and results that never were?"
reads      = ["steps", "trajectories", "claims", "argument_errors"]
limits     = "Claims are recognised in English, and only where the tool's name, or its verb with its object, is said; a sentence that reports what was read, asked or planned is left out even where it also claims. A tool that does the same under another verb makes a claim look false."
references = [
    "design.md, section 5, tool_hallucination",
    "Patil et al., Gorilla, arXiv 2305.15334: calls of an API that does not exist as hallucination",
]

[params.framework_tools]
type    = "VARCHAR[]"
default = []
help    = "Names of tools that the framework or the provider runs itself (hand-off, final answer, web search), beside the known ones."

[params.claim_patterns]
type    = "MAP(VARCHAR, VARCHAR[])"
default = {}
help    = "Tool to regular expressions (Python's, without regard to case); a text of the assistant that matches claims the tool. It serves other languages than English: issue_refund = ['erstattung (?:ist|wurde) veranlasst']. Tense and negation are the pattern's own affair."

[params.checks]
type    = "MAP(VARCHAR, VARCHAR[])"
default = {}
help    = "Tool to the read-only tools that show whether it took effect; from [tools]."

[columns]
trajectory_id    = "run"
trace_id         = "its trace"
span_id          = "model call that asked or wrote; the tool call where no model call is recorded"
kind             = "unknown_tool, never_executed, claimed_not_called, claimed_despite_failure, fabricated_result, invalid_arguments or not_evaluable"
severity         = "error, warning or note"
message          = "what was asked or said, and what the trace holds"
related_span_ids = "tool calls that belong to it"
tool_name        = "tool"
said             = "the sentence of a claim, or the made-up result"
meant            = "the offered tool whose name is nearest to an unknown one"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
WITH requests AS (
    SELECT
        trajectory_id, trace_id, span_id, step_index, agent_name, offered_tools::VARCHAR AS offered,
        unnest(list_transform(from_json(requested_tool_calls, '[{"id":"VARCHAR","name":"VARCHAR"}]'), lambda c, i: {'id': c.id, 'name': c.name, 'position': i})) AS call
    FROM steps
),
tool_steps AS (
    SELECT
        trajectory_id, trace_id, span_id, step_index, tool_name, tool_call_id, turn_span_id, tool_ran, status, effect, mutability, error_type,
        offered_tools::VARCHAR AS offered,
        -- What the runtime does not know was not offered, whether or not the offer was recorded.
        coalesce(effect_reason = 'unknown_tool', FALSE) AS refused_as_unknown
    FROM steps
    WHERE tool_name IS NOT NULL
),
model_runs AS (
    SELECT trajectory_id, max(step_index) AS last_index, bool_or(requested_tool_calls IS NOT NULL) AS has_requests
    FROM steps
    WHERE kind = 'model'
    GROUP BY trajectory_id
),
-- One parse per different list: the same tools are offered thousands of times.
offers AS (
    SELECT offered, list_filter(list_transform(from_json(offered::JSON, '[{"name":"VARCHAR"}]'), lambda t: t.name), lambda n: n IS NOT NULL) AS names
    FROM (SELECT DISTINCT offered_tools::VARCHAR AS offered FROM steps)
),
-- Tools of frameworks and providers: they are asked for like others, and run elsewhere or not at all.
kinds_of_tools AS (
    SELECT
        name,
        list_contains($framework_tools::VARCHAR[], name)
            OR regexp_matches(name, '^(?:transfer_(?:to|back)_|hand_?off|handoff_to_)', 'i')
            OR regexp_matches(name, '^(?:final_(?:result|answer|output|response)\w*|finish|submit_final_answer|structured_output|set_model_response|complete_task|attempt_completion|exit_loop|escalate|delegate_work_to_coworker|ask_question_to_coworker|delegate work to coworker|ask question to coworker)$', 'i') AS is_framework,
        regexp_matches(name, '^(?:web_search\w*|google_search\w*|code_interpreter|code_execution|file_search|computer(?:_use)?\w*|image_generation|url_context|mcp_call|mcp_list_tools|tool_search\w*|local_shell|adk_request_\w+|request_(?:approval|confirmation|human)\w*|ask_(?:user|human)\w*|human_input)$', 'i') AS is_provider,
        lower(regexp_replace(name, '[^A-Za-z0-9]+', '_', 'g')) AS plain_name
    FROM (SELECT DISTINCT call.name AS name FROM requests)
),
handled AS (
    SELECT
        q.trajectory_id, q.trace_id, q.span_id, q.step_index, q.agent_name, q.call.id AS id, q.call.name AS name, q.call.position AS position, o.names AS offered,
        k.is_framework, k.is_provider, k.plain_name
    FROM requests AS q
    JOIN kinds_of_tools AS k ON k.name = q.call.name
    LEFT JOIN offers AS o ON o.offered = q.offered
),
by_name AS (
    SELECT trajectory_id, plain_name, count(*) AS requested FROM handled GROUP BY trajectory_id, plain_name
),
executed_by_name AS (
    SELECT trajectory_id, plain_name, max(executed) AS executed
    FROM (
        SELECT trajectory_id, lower(regexp_replace(tool_name, '[^A-Za-z0-9]+', '_', 'g')) AS plain_name, n AS executed
        FROM (SELECT trajectory_id, tool_name, count(*) AS n FROM tool_steps GROUP BY trajectory_id, tool_name)
        UNION ALL
        -- An agent that runs as a tool.
        SELECT trajectory_id, lower(regexp_replace(coalesce(agent_name, name), '[^A-Za-z0-9]+', '_', 'g')), count(*) FROM steps WHERE kind = 'agent' GROUP BY ALL
    )
    GROUP BY trajectory_id, plain_name
),
-- Where each name ran as often as it was requested, and all of them were offered, no request needs a closer look.
missing AS MATERIALIZED (
    SELECT n.trajectory_id, n.plain_name
    FROM by_name AS n
    LEFT JOIN executed_by_name AS e ON e.trajectory_id = n.trajectory_id AND e.plain_name = n.plain_name
    WHERE coalesce(e.executed, 0) < n.requested
),
closer AS MATERIALIZED (
    SELECT trajectory_id FROM missing
    UNION
    SELECT trajectory_id FROM handled WHERE offered IS NULL OR NOT list_contains(offered, name)
    UNION
    SELECT trajectory_id FROM argument_errors
),
-- The step that a request became: by its link, else by its id.
answers AS MATERIALIZED (
    SELECT
        q.trajectory_id, q.span_id, q.position,
        list_sort(list_distinct(list(t.span_id))) AS span_ids,
        bool_or(coalesce(t.tool_ran, TRUE)) AS ran,
        bool_or(t.refused_as_unknown) AS refused_as_unknown
    FROM (SELECT * FROM handled SEMI JOIN closer USING (trajectory_id)) AS q
    JOIN (SELECT * FROM tool_steps SEMI JOIN closer USING (trajectory_id)) AS t ON t.trajectory_id = q.trajectory_id
        AND ((t.turn_span_id = q.span_id AND (t.tool_call_id = q.id OR ((t.tool_call_id IS NULL OR q.id IS NULL) AND lower(t.tool_name) = lower(q.name))))
            OR (t.turn_span_id IS NULL AND t.tool_call_id = q.id AND t.step_index > q.step_index))
    GROUP BY q.trajectory_id, q.span_id, q.position
),
unknown_requests AS (
    SELECT q.*, coalesce(a.span_ids, []) AS span_ids, coalesce(a.ran, FALSE) AS ran
    FROM (SELECT * FROM handled SEMI JOIN closer USING (trajectory_id)) AS q
    LEFT JOIN answers AS a ON a.trajectory_id = q.trajectory_id AND a.span_id = q.span_id AND a.position = q.position
    WHERE CASE WHEN q.offered IS NULL THEN coalesce(a.refused_as_unknown, FALSE)
        -- Hand-offs and final answers are at times not recorded among the tools.
        ELSE NOT list_contains(q.offered, q.name) AND (NOT q.is_framework OR coalesce(a.refused_as_unknown, FALSE)) END
),
-- Without a recorded request: a run of a tool server's client, or one whose requests were not captured.
unrequested AS (
    SELECT
        t.trajectory_id, t.trace_id, t.span_id, t.tool_name AS name, coalesce(t.refused_as_unknown, FALSE) AS refused_as_unknown,
        CASE WHEN m.trajectory_id IS NULL THEN o.names ELSE r.names END AS offered
    FROM tool_steps AS t
    LEFT JOIN model_runs AS m ON m.trajectory_id = t.trajectory_id
    LEFT JOIN offers AS o ON o.offered = t.offered
    LEFT JOIN (
        SELECT s.trajectory_id, list_sort(list_distinct(flatten(list(o.names)))) AS names
        FROM steps AS s
        JOIN offers AS o ON o.offered = s.offered_tools::VARCHAR
        WHERE s.kind = 'model'
        GROUP BY s.trajectory_id
    ) AS r ON r.trajectory_id = t.trajectory_id
    WHERE m.trajectory_id IS NULL OR NOT m.has_requests
),
unknown AS (
    SELECT trajectory_id, trace_id, span_id, position, name, offered, span_ids AS related, 'the model requested ' AS did FROM unknown_requests
    UNION ALL
    SELECT trajectory_id, trace_id, span_id, 0, name, offered, [], 'the run called ' FROM unrequested
    WHERE (CASE WHEN offered IS NULL THEN refused_as_unknown ELSE NOT list_contains(offered, name) END) AND NOT list_contains($framework_tools::VARCHAR[], name)
),
-- Names in one spelling: lower case, words joined by _, in the singular.
spelled AS (
    SELECT *, list_transform(list_prepend(name, offered), lambda n: array_to_string(list_transform(
        string_split_regex(lower(regexp_replace(n, '([a-z0-9])([A-Z])', '\1_\2', 'g')), '[^a-z0-9]+'),
        lambda w: regexp_replace(regexp_replace(w, 'ies$', 'y'), '([^s])s$', '\1')), '_')) AS words
    FROM unknown
),
nearest AS (
    SELECT *,
        list_sort(list_transform(offered, lambda o, i: {
            'distance': CASE
                WHEN words[i + 1] = words[1] THEN 0
                -- The name without its namespace, or with one that is not its own.
                WHEN ends_with(words[i + 1], '_' || words[1]) OR ends_with(words[1], '_' || words[i + 1]) THEN 1
                ELSE damerau_levenshtein(words[i + 1], words[1]) END,
            'tool': o})) AS near
    FROM spelled
),
unknown_findings AS (
    SELECT
        trajectory_id, trace_id, span_id, position, name, related,
        -- Of two equally near ones neither: the trace does not say which.
        CASE WHEN near[1].distance <= greatest(2, length(name) // 4) AND near[1].distance IS DISTINCT FROM near[2].distance THEN near[1].tool END AS meant,
        did || left(name, 80) || CASE
            WHEN offered IS NULL THEN ', which the runtime refused as unknown'
            WHEN len(offered) = 0 THEN ', and no tools were offered'
            ELSE ', which is not among the ' || len(offered) || ' tool' || CASE WHEN len(offered) = 1 THEN '' ELSE 's' END || ' offered' END AS what
    FROM nearest
),
-- Requests that nothing answers. Counted by name where a library gives no ids, so that one execution answers one request.
unanswered AS (
    SELECT q.*, q.step_index >= m.last_index AS is_last
    FROM handled AS q
    SEMI JOIN missing AS n ON n.trajectory_id = q.trajectory_id AND n.plain_name = q.plain_name
    ANTI JOIN answers AS a ON a.trajectory_id = q.trajectory_id AND a.span_id = q.span_id AND a.position = q.position
    ANTI JOIN unknown_requests AS u ON u.trajectory_id = q.trajectory_id AND u.span_id = q.span_id AND u.position = q.position
    JOIN model_runs AS m ON m.trajectory_id = q.trajectory_id
    -- A hand-off or a final answer in the same turn ends the agent's work: its other calls are dropped by design.
    ANTI JOIN (SELECT trajectory_id, span_id FROM handled WHERE is_framework) AS f ON f.trajectory_id = q.trajectory_id AND f.span_id = q.span_id
    WHERE NOT q.is_framework AND NOT q.is_provider
),
readers AS (
    SELECT s.trajectory_id, s.step_index, s.input_messages IS NOT NULL AS captured,
        flatten(list_transform(from_json(s.input_messages, '[{"parts":[{"type":"VARCHAR","id":"VARCHAR","name":"VARCHAR"}]}]'), lambda m: coalesce(m.parts, []))) AS parts
    FROM steps AS s
    SEMI JOIN unanswered AS u ON u.trajectory_id = s.trajectory_id
    WHERE s.kind = 'model'
),
read_results AS (
    SELECT trajectory_id, step_index, captured, list_filter(parts, lambda p: p.type = 'tool_call_response') AS results FROM readers
),
unread AS (
    SELECT
        u.trajectory_id, u.trace_id, u.span_id, u.position, u.name, u.is_last,
        coalesce(bool_or(r.step_index > u.step_index AND len(list_filter(r.results, lambda p: p.id = u.id OR ((p.id IS NULL OR u.id IS NULL) AND p.name = u.name))) > 0), FALSE) AS has_result,
        coalesce(bool_and(r.captured) FILTER (WHERE r.step_index > u.step_index), TRUE) AS later_captured,
        coalesce(bool_or(len(r.results) > 0), FALSE) AS other_results
    FROM unanswered AS u
    LEFT JOIN read_results AS r ON r.trajectory_id = u.trajectory_id
    GROUP BY ALL
),
never_executed AS (
    SELECT
        u.*,
        (u.other_results OR EXISTS (FROM tool_steps AS t WHERE t.trajectory_id = u.trajectory_id)) AS others_recorded
    FROM unread AS u
    WHERE NOT u.has_result
),
-- What became of each tool that a text speaks of.
done AS (
    SELECT
        trajectory_id, tool_name,
        bool_or(effect = 'yes') AS worked,
        bool_or(effect = 'unknown') AS unclear,
        list_sort(list(span_id)) AS span_ids,
        max(step_index) AS last_index,
        arg_max('step ' || step_index || ' ' || CASE status WHEN 'timeout' THEN 'timed out' WHEN 'unfinished' THEN 'never ended' WHEN 'cancelled' THEN 'was cancelled' ELSE 'failed' || coalesce(' with ' || left(error_type, 60), '') END, step_index) AS ending
    FROM tool_steps
    SEMI JOIN (SELECT unnest(list_append(candidates, tool_name)) AS tool_name FROM claims) USING (tool_name)
    WHERE tool_ran IS DISTINCT FROM FALSE
    GROUP BY trajectory_id, tool_name
),
counted AS (
    SELECT *, row_number() OVER (ORDER BY trajectory_id, span_id, position, text, form, tool_name) AS claim
    FROM claims
    WHERE tense = 'past' AND polarity = 'positive' AND NOT quoted
      AND (form <> 'pattern' OR map_contains($claim_patterns::MAP(VARCHAR, VARCHAR[]), tool_name))
),
-- Claims that a run's own calls make true or doubtful; most end here.
weighed AS (
    SELECT
        c.claim, coalesce(bool_or(d.worked), FALSE) AS worked, coalesce(bool_or(d.unclear), FALSE) AS unclear,
        count(d.tool_name) AS called, arg_max(d.ending, d.last_index) AS ending, max(d.last_index) AS last_index,
        list_sort(list_distinct(flatten(list(d.span_ids)))) AS span_ids
    FROM (SELECT claim, trajectory_id, unnest(list_distinct(list_append(candidates, tool_name))) AS tool FROM counted) AS c
    LEFT JOIN done AS d ON d.trajectory_id = c.trajectory_id AND d.tool_name = c.tool
    GROUP BY c.claim
),
doubted AS (
    SELECT c.*, w.unclear, w.called, w.ending, w.last_index, w.span_ids, t.session_id, t.tenant_id, t.start_time, t.user_input, t.model_call_count
    FROM counted AS c
    JOIN weighed AS w ON w.claim = c.claim
    JOIN trajectories AS t ON t.trajectory_id = c.trajectory_id
    WHERE NOT w.worked
),
-- Earlier runs of the session.
earlier AS (
    SELECT d.claim, bool_or(e.worked OR e.unclear) AS happened
    FROM doubted AS d
    JOIN trajectories AS o ON o.session_id = d.session_id AND o.tenant_id IS NOT DISTINCT FROM d.tenant_id
        AND o.trajectory_id <> d.trajectory_id AND coalesce(o.start_time <= d.start_time, TRUE)
    JOIN done AS e ON e.trajectory_id = o.trajectory_id AND list_contains(list_append(d.candidates, d.tool_name), e.tool_name)
    GROUP BY d.claim
),
earlier_runs AS (
    SELECT d.claim, count(*) AS runs
    FROM doubted AS d
    JOIN trajectories AS o ON o.session_id = d.session_id AND o.tenant_id IS NOT DISTINCT FROM d.tenant_id
        AND o.trajectory_id <> d.trajectory_id AND coalesce(o.start_time <= d.start_time, TRUE)
    GROUP BY d.claim
),
-- What the first model call was given: the history that came with the run.
first_inputs AS (
    SELECT
        s.trajectory_id,
        arg_min({'input': s.input_messages::VARCHAR}, (s.step_index, s.span_id)).input AS input
    FROM steps AS s
    SEMI JOIN doubted AS d ON d.trajectory_id = s.trajectory_id
    WHERE s.kind = 'model'
    GROUP BY s.trajectory_id
),
histories AS (
    SELECT
        trajectory_id, input IS NOT NULL AS captured,
        len(list_filter(messages, lambda m: m.role = 'assistant')) AS assistant_turns,
        len(list_filter(messages, lambda m: m.role = 'user' AND len(list_filter(m.parts, lambda p: p.type = 'text')) > 0)) AS user_turns,
        list_filter(flatten(list_transform(messages, lambda m: coalesce(m.parts, []))), lambda p: p.type IN ('tool_call', 'tool_call_response')) AS calls
    FROM (
        SELECT trajectory_id, input, from_json(input::JSON, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","id":"VARCHAR","name":"VARCHAR","is_error":"BOOLEAN"}]}]') AS messages
        FROM first_inputs
    )
),
-- What tools gave back in the run; a claim in the passive may only repeat it.
observed AS (
    SELECT s.trajectory_id,
        string_agg(left(lower(s.observation::VARCHAR), 20000), ' ' ORDER BY s.step_index, s.span_id) AS texts,
        string_agg(left(lower(s.observation::VARCHAR), 20000), ' ' ORDER BY s.step_index, s.span_id) FILTER (WHERE s.mutability IS DISTINCT FROM 'read_only' AND s.status = 'ok') AS texts_of_changes
    FROM steps AS s
    SEMI JOIN doubted AS d ON d.trajectory_id = s.trajectory_id
    WHERE s.kind = 'tool' AND s.observation IS NOT NULL
    GROUP BY s.trajectory_id
),
-- A successful read after an unclear call, of what the call's name speaks of.
nouns AS (
    SELECT tool, list_transform(CASE WHEN len(words) > 1 THEN words[2:] ELSE words END, lambda w: regexp_replace(regexp_replace(w, 'ies$', 'y'), '([^s])s$', '\1')) AS nouns
    FROM (
        SELECT DISTINCT tool, list_filter(string_split_regex(lower(regexp_replace(regexp_replace(tool, '^.*__', ''), '([a-z0-9])([A-Z])', '\1_\2', 'g')), '[^a-z0-9]+'), lambda w: w <> '') AS words
        FROM (SELECT tool_name AS tool FROM doubted UNION SELECT tool_name FROM tool_steps SEMI JOIN doubted USING (trajectory_id))
    )
),
looked AS (
    SELECT d.claim
    FROM doubted AS d
    JOIN tool_steps AS t ON t.trajectory_id = d.trajectory_id AND t.step_index > d.last_index AND t.status = 'ok' AND t.mutability = 'read_only'
    JOIN nouns AS a ON a.tool = d.tool_name
    JOIN nouns AS b ON b.tool = t.tool_name
    WHERE d.unclear AND (list_has_any(a.nouns, b.nouns) OR coalesce(list_contains(($checks::MAP(VARCHAR, VARCHAR[]))[d.tool_name], t.tool_name), FALSE))
    GROUP BY d.claim
),
-- The tool that the text speaks of was asked for, in a run whose recording holds no executions at all.
unrecorded AS (
    SELECT DISTINCT d.claim
    FROM doubted AS d
    JOIN never_executed AS n ON n.trajectory_id = d.trajectory_id AND list_contains(list_append(d.candidates, d.tool_name), n.name)
    WHERE NOT n.others_recorded
),
facts AS (
    SELECT
        d.*,
        coalesce(e.happened, FALSE) AS happened_earlier,
        coalesce(len(list_filter(h.calls, lambda p: list_contains(list_append(d.candidates, d.tool_name), p.name) AND p.is_error IS DISTINCT FROM TRUE)) > 0, FALSE) AS in_history,
        -- Said in the passive, it may repeat what a tool reported; said of oneself, another change may have brought it about.
        d.form IN ('effect', 'verb') AND len(d.words) > 0 AND coalesce(regexp_matches(
            CASE WHEN d.by_agent THEN o.texts_of_changes ELSE o.texts END,
            '\b(?:' || array_to_string(d.words, '|') || ')\b'), FALSE) AS repeats_a_result,
        l.claim IS NOT NULL AS looked,
        CASE
            WHEN d.model_call_count = 0 OR h.trajectory_id IS NULL THEN CASE WHEN d.user_input IS NULL THEN 'no model call and no user input were recorded' END
            WHEN NOT h.captured THEN 'the input of the first model call was not captured'
            WHEN coalesce(h.assistant_turns, 0) > 0 AND len(h.calls) = 0 AND coalesce(r.runs, 0) < h.user_turns - 1
                THEN 'the run begins in the middle of a conversation whose tool calls were not recorded'
            WHEN u.claim IS NOT NULL THEN 'the tool was requested, and neither executions nor results of any tool were recorded'
        END AS hidden_history
    FROM doubted AS d
    LEFT JOIN earlier AS e ON e.claim = d.claim
    LEFT JOIN earlier_runs AS r ON r.claim = d.claim
    LEFT JOIN histories AS h ON h.trajectory_id = d.trajectory_id
    LEFT JOIN observed AS o ON o.trajectory_id = d.trajectory_id
    LEFT JOIN looked AS l ON l.claim = d.claim
    LEFT JOIN unrecorded AS u ON u.claim = d.claim
),
claim_verdicts AS (
    SELECT
        *,
        CASE WHEN called = 0 THEN 'claimed_not_called' ELSE 'claimed_despite_failure' END AS kind,
        CASE
            WHEN source = 'thought' THEN 1
            WHEN called > 0 THEN CASE WHEN unclear THEN 2 ELSE 3 END
            WHEN form = 'literal' OR (form <> 'verb' AND mutability IN ('mutating', 'idempotent')) THEN 3
            ELSE 2
        END AS level
    FROM facts
    WHERE NOT happened_earlier AND NOT in_history AND NOT repeats_a_result
      AND (called = 0 OR (success AND NOT (unclear AND looked)))
),
-- One finding per run and tool: a text that says it twice has made it up once.
claim_findings AS (
    SELECT
        trajectory_id, tool_name, kind,
        arg_max({'trace_id': trace_id, 'span_id': span_id, 'level': level, 'said': text, 'span_ids': span_ids, 'ending': ending, 'unclear': unclear},
            (level, form = 'literal', -claim)) AS f
    FROM claim_verdicts
    WHERE kind = 'claimed_despite_failure' OR hidden_history IS NULL
    GROUP BY trajectory_id, tool_name, kind
),
-- Results that the model wrote itself, compared by letters and digits: quoting and escapes make no difference.
made_up AS (
    SELECT c.trajectory_id, c.trace_id, c.span_id, c.position, c.text, left(regexp_replace(lower(c.text), '[^a-z0-9]+', '', 'g'), 200) AS letters
    FROM claims AS c
    WHERE c.form = 'result' AND c.source = 'answer'
),
real_results AS (
    SELECT s.trajectory_id,
        bool_or(s.kind = 'tool' AND s.observation IS NULL AND s.tool_ran IS DISTINCT FROM FALSE) AS some_unseen,
        string_agg(left(regexp_replace(lower(coalesce(s.observation::VARCHAR, s.input_messages::VARCHAR, '')), '\\[nrtu"\\/]|[^a-z0-9]+', '', 'g'), 100000), ' ' ORDER BY s.step_index, s.span_id) AS letters
    FROM steps AS s
    SEMI JOIN made_up AS m ON m.trajectory_id = s.trajectory_id
    WHERE s.kind IN ('tool', 'model')
    GROUP BY s.trajectory_id
),
fabricated AS (
    SELECT m.trajectory_id, m.trace_id, m.span_id, m.position, m.text, coalesce(r.some_unseen, FALSE) AS some_unseen
    FROM made_up AS m
    LEFT JOIN real_results AS r ON r.trajectory_id = m.trajectory_id
    WHERE m.letters <> '' AND NOT contains(coalesce(r.letters, ''), m.letters)
),
found AS (
    SELECT
        trajectory_id, trace_id, span_id, 'unknown_tool' AS kind, 'error' AS severity,
        what || CASE WHEN meant IS NULL THEN '' ELSE '; it probably meant ' || meant END AS message,
        related AS related_span_ids, name AS tool_name, NULL::VARCHAR AS said, meant, position
    FROM unknown_findings
    UNION ALL
    SELECT
        trajectory_id, trace_id, span_id, 'never_executed', CASE WHEN is_last THEN 'note' ELSE 'error' END,
        'the model requested ' || left(name, 80) || ', and neither an execution nor a result nor a refusal of it was recorded' || CASE WHEN is_last THEN '; the run ended there' ELSE '; the run went on without it' END,
        [], name, NULL, NULL, position
    FROM never_executed
    WHERE others_recorded AND (later_captured OR is_last)
    UNION ALL
    SELECT
        trajectory_id, f.trace_id, f.span_id, kind, ['note', 'warning', 'error'][f.level],
        'the agent says "' || CASE WHEN length(f.said) > 150 THEN left(f.said, 147) || '...' ELSE f.said END || '", ' || CASE
            WHEN kind = 'claimed_not_called' THEN 'but ' || left(tool_name, 80) || ' was never called'
            WHEN f.unclear THEN 'but whether ' || left(tool_name, 80) || ' took effect was not known (' || f.ending || '), and nothing checked it'
            ELSE 'but no call of ' || left(tool_name, 80) || ' took effect (' || f.ending || ')' END,
        coalesce(f.span_ids, []), tool_name, f.said, NULL, 0
    FROM claim_findings
    UNION ALL
    SELECT
        trajectory_id, trace_id, span_id, 'fabricated_result', 'warning',
        'the model wrote a tool result that no execution gave: "' || CASE WHEN length(text) > 150 THEN left(text, 147) || '...' ELSE text END || '"',
        [], NULL, text, NULL, position
    FROM fabricated
    WHERE NOT some_unseen
    UNION ALL
    SELECT
        e.trajectory_id, e.trace_id, e.span_id, 'invalid_arguments', 'warning',
        left(e.tool_name, 80) || ' was requested with arguments that break its schema: ' || e.message,
        coalesce(a.span_ids, []), e.tool_name, NULL, NULL, e.position
    FROM argument_errors AS e
    LEFT JOIN answers AS a ON a.trajectory_id = e.trajectory_id AND a.span_id = e.span_id AND a.position = e.position
    -- The first kind that applies to a call is its finding; an unknown tool has no schema to break.
    ANTI JOIN never_executed AS n ON n.trajectory_id = e.trajectory_id AND n.span_id = e.span_id AND n.position = e.position
    WHERE e.source = 'offered'
),
blind AS (
    SELECT q.trajectory_id, 'unknown_tool' AS concerned, 'the tools offered to the model were not recorded' AS reason
    FROM handled AS q
    ANTI JOIN unknown_requests AS u ON u.trajectory_id = q.trajectory_id AND u.span_id = q.span_id AND u.position = q.position
    WHERE q.offered IS NULL AND NOT q.is_framework
    UNION
    SELECT trajectory_id, 'unknown_tool', 'neither model calls nor a list of tools were recorded' FROM unrequested WHERE offered IS NULL AND NOT refused_as_unknown
    UNION
    SELECT trajectory_id, 'never_executed', 'requests were recorded, executions and results were not' FROM never_executed
    WHERE NOT is_last AND NOT others_recorded
    UNION
    SELECT trajectory_id, 'never_executed', 'the input of later model calls was not captured' FROM never_executed
    WHERE NOT is_last AND others_recorded AND NOT later_captured
    UNION
    SELECT trajectory_id, 'claimed_not_called', hidden_history FROM claim_verdicts
    WHERE kind = 'claimed_not_called' AND hidden_history IS NOT NULL
    UNION
    SELECT t.trajectory_id, 'claimed_not_called', 'the text of the assistant was not captured'
    FROM trajectories AS t
    LEFT JOIN (
        SELECT trajectory_id, arg_max({'output': output_messages IS NOT NULL}, (step_index, span_id)).output AS has_output
        FROM steps WHERE kind = 'model' GROUP BY trajectory_id
    ) AS m ON m.trajectory_id = t.trajectory_id
    WHERE t.final_response IS NULL AND NOT coalesce(m.has_output, FALSE)
    UNION
    SELECT trajectory_id, 'fabricated_result', 'the results of some tool calls were not captured' FROM fabricated WHERE some_unseen
)
SELECT trajectory_id, trace_id, span_id, kind, severity, message, related_span_ids, tool_name, said, meant, NULL::JSON AS evidence
FROM found
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], NULL, NULL, NULL, json_object('kind', concerned)
FROM blind
ORDER BY trajectory_id, kind, span_id, tool_name, message
