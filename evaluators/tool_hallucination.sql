/* +++
name       = "tool_hallucination"
returns    = "findings"
scope      = "session"
severity   = "error"
question   = "Did the agent call tools that do not exist, or claim calls and results that never were?"
reads      = ["steps", "trajectories", "claims", "argument_errors"]
limits     = "Claims are recognised in English, and only where the tool's name, or its verb with its object, is said; a sentence that reports what was read, asked or planned is left out even where it also claims. A tool that does the same under another verb makes a claim look false. A made-up result is not found where a later model call was given it among its own words. In a run where unknown names times offered ones are more than 100,000, what an unknown name meant is not looked for; the finding stands."
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
related_span_ids = "tool calls that belong to it; at most a hundred of one id or name, the last ones"
tool_name        = "tool"
said             = "the sentence of a claim, or the made-up result"
meant            = "offered tools whose names are nearest to an unknown one, in the order of the offer; NULL where none is near, more than three, or where they were too many to compare"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
-- One parse per different list: the same tools are offered thousands of times. Everything below knows a list by its hash:
-- a model may be offered, and ask for, thousands of tools at once.
WITH offers AS MATERIALIZED (
    SELECT hash(offer) AS offer, list_filter(list_transform(from_json(offer::JSON, '[{"name":"VARCHAR"}]'), lambda t: t.name), lambda n: n IS NOT NULL) AS offered
    FROM (SELECT DISTINCT offered_tools::VARCHAR AS offer FROM steps)
),
-- What ran, as one number per run that is the same for the same names as often.
ran AS MATERIALIZED (
    SELECT
        trajectory_id, sum(hash(tool_name)) FILTER (WHERE tool_name IS NOT NULL) AS names, bool_or(requested_tool_calls IS NOT NULL) AS has_requests,
        coalesce(bool_or(effect_reason = 'unknown_tool'), FALSE) AS was_refused
    FROM steps
    GROUP BY trajectory_id
),
asked AS (
    SELECT
        s.trajectory_id, json_extract_string(s.requested_tool_calls, '$[*].name') AS names, list_sum(list_transform(names, lambda n: hash(n))) AS hashed,
        NOT coalesce(list_has_all(o.offered, names), FALSE) AS not_offered
    FROM steps AS s
    LEFT JOIN offers AS o ON o.offer = hash(s.offered_tools::VARCHAR)
    WHERE s.requested_tool_calls::VARCHAR <> '[]'
),
-- Most runs end here: all that was requested was offered and ran.
odd_runs AS MATERIALIZED (
    SELECT trajectory_id
    FROM (SELECT trajectory_id, sum(hashed) AS names, bool_or(not_offered) AS not_offered FROM asked GROUP BY trajectory_id) AS q
    JOIN ran AS r USING (trajectory_id)
    WHERE q.not_offered OR q.names IS DISTINCT FROM r.names
    UNION SELECT trajectory_id FROM ran WHERE was_refused
    UNION SELECT trajectory_id FROM argument_errors
),
requests AS MATERIALIZED (
    SELECT
        trajectory_id, trace_id, span_id, step_index, hash(offered_tools::VARCHAR) AS offer,
        unnest(list_transform(from_json(requested_tool_calls, '[{"id":"VARCHAR","name":"VARCHAR"}]'), lambda c, i: {'id': c.id, 'name': c.name, 'position': i})) AS call
    FROM steps SEMI JOIN odd_runs USING (trajectory_id)
),
-- Runs without a recorded request, those of a tool server's client, or whose requests were not captured; and what was
-- refused to a model that writes code which calls the tools.
unasked AS MATERIALIZED (
    SELECT
        s.trajectory_id, s.trace_id, s.span_id, s.kind, s.tool_name AS name, s.effect_reason IS NOT DISTINCT FROM 'unknown_tool' AS refused_as_unknown,
        CASE WHEN NOT r.has_requests THEN hash(s.offered_tools::VARCHAR) END AS offer
    FROM steps AS s
    JOIN ran AS r USING (trajectory_id)
    ANTI JOIN requests USING (trajectory_id)
    WHERE NOT r.has_requests OR s.effect_reason = 'unknown_tool'
),
-- Claims of something that is done, unless a call of the run did it; most end here.
unsettled AS MATERIALIZED (
    SELECT
        c.*, row_number() OVER (ORDER BY c.trajectory_id, c.span_id, c.position, c.text, c.form, c.tool_name) AS claim,
        -- The same of the same tool, as far as the trace can tell: a run may say it thousands of times.
        dense_rank() OVER (ORDER BY c.trajectory_id, c.tool_name, c.candidates, c.form, c.by_agent, c.words) AS saying
    FROM claims AS c
    ANTI JOIN (SELECT DISTINCT trajectory_id, tool_name FROM steps WHERE tool_ran IS DISTINCT FROM FALSE AND effect = 'yes') AS t
        ON t.trajectory_id = c.trajectory_id AND list_contains(c.candidates, t.tool_name)
    WHERE c.tense = 'past' AND c.polarity = 'positive' AND NOT c.quoted AND c.form <> 'result'
      AND (c.form <> 'pattern' OR map_contains($claim_patterns::MAP(VARCHAR, VARCHAR[]), c.tool_name))
),
tool_steps AS MATERIALIZED (
    SELECT
        trajectory_id, trace_id, span_id, step_index, tool_name, tool_call_id, turn_span_id, tool_ran, status, effect, mutability, error_type,
        left(lower(observation::VARCHAR), 20000) AS observation,
        -- What the runtime does not know was not offered, whether or not the offer was recorded.
        effect_reason IS NOT DISTINCT FROM 'unknown_tool' AS refused_as_unknown,
        -- Among those that a request may mean: of thousands without an id of their own, the last hundred stand for all.
        row_number() OVER (PARTITION BY trajectory_id, turn_span_id, tool_call_id, refused_as_unknown ORDER BY step_index DESC, span_id) AS of_id,
        row_number() OVER (PARTITION BY trajectory_id, turn_span_id, lower(tool_name), tool_call_id IS NULL, refused_as_unknown ORDER BY step_index DESC, span_id) AS of_name
    FROM steps
    SEMI JOIN (
        SELECT trajectory_id FROM odd_runs
        UNION SELECT trajectory_id FROM unsettled
        UNION SELECT trajectory_id FROM trajectories SEMI JOIN (SELECT session_id FROM trajectories SEMI JOIN unsettled USING (trajectory_id)) USING (session_id)
    ) USING (trajectory_id)
    WHERE tool_name IS NOT NULL
),
-- Tools of frameworks and providers: they are asked for like others, and run elsewhere or not at all.
kinds_of_tools AS MATERIALIZED (
    SELECT
        name,
        list_contains($framework_tools::VARCHAR[], name) OR coalesce(tool_role(name) IN ('hand_off', 'final_answer', 'delegation'), FALSE) AS is_framework,
        coalesce(tool_role(name) IN ('approval', 'provider'), FALSE) AS is_provider,
        lower(regexp_replace(name, '[^A-Za-z0-9]+', '_', 'g')) AS plain_name
    FROM (SELECT call.name AS name FROM requests UNION SELECT tool_name FROM tool_steps UNION SELECT name FROM unasked)
),
-- What models were offered, and all that the models of a run without requests were offered.
all_offers AS MATERIALIZED (
    SELECT offer, offered FROM offers WHERE offered IS NOT NULL
    UNION ALL
    SELECT hash(trajectory_id), list_sort(list_distinct(flatten(list(DISTINCT offered))))
    FROM unasked
    JOIN offers USING (offer)
    WHERE kind = 'model' AND offered IS NOT NULL
    GROUP BY trajectory_id
),
-- Apart from the lists, which a join would copy to each row.
offer_sizes AS MATERIALIZED (SELECT offer, len(offered) AS size FROM all_offers),
offered_names AS MATERIALIZED (SELECT DISTINCT offer, unnest(offered) AS name FROM all_offers),
handled AS MATERIALIZED (
    SELECT
        q.trajectory_id, q.trace_id, q.span_id, q.step_index, q.call.id AS id, k.*, q.call.position AS position, q.offer,
        CASE WHEN q.offer IN (SELECT offer FROM offer_sizes) THEN o.name IS NOT NULL END AS is_offered
    FROM requests AS q
    JOIN kinds_of_tools AS k ON k.name = q.call.name
    LEFT JOIN offered_names AS o ON o.offer = q.offer AND o.name = q.call.name
),
executed AS (
    SELECT trajectory_id, plain_name, max(times) AS times
    FROM (
        SELECT t.trajectory_id, k.plain_name, count(*) AS times
        FROM tool_steps AS t JOIN kinds_of_tools AS k ON k.name = t.tool_name
        GROUP BY ALL
        UNION ALL
        -- An agent that runs as a tool.
        SELECT trajectory_id, lower(regexp_replace(coalesce(agent_name, name), '[^A-Za-z0-9]+', '_', 'g')), count(*)
        FROM steps SEMI JOIN odd_runs USING (trajectory_id) WHERE kind = 'agent'
        GROUP BY ALL
    )
    GROUP BY ALL
),
-- Names that were requested more often than they ran: where a library gives no ids, one execution answers one request.
missing AS (
    SELECT q.trajectory_id, q.plain_name, q.times - coalesce(e.times, 0) AS times
    FROM (SELECT trajectory_id, plain_name, count(*) AS times FROM handled GROUP BY ALL) AS q
    LEFT JOIN executed AS e USING (trajectory_id, plain_name)
    WHERE coalesce(e.times, 0) < q.times
),
suspects AS MATERIALIZED (
    SELECT *
    FROM handled
    SEMI JOIN (
        SELECT trajectory_id FROM missing
        UNION SELECT trajectory_id FROM handled WHERE is_offered IS NOT TRUE
        UNION SELECT trajectory_id FROM argument_errors
    ) USING (trajectory_id)
),
-- Each request with the steps that it became: by their link to the turn or as later ones, by their ids or names.
links AS (
    SELECT q.trajectory_id, q.trace_id, q.span_id, q.position, t.span_id AS related, t.refused_as_unknown
    FROM suspects AS q JOIN tool_steps AS t ON t.trajectory_id = q.trajectory_id AND t.turn_span_id = q.span_id AND t.tool_call_id = q.id AND t.of_id <= 100
    UNION ALL
    SELECT q.trajectory_id, q.trace_id, q.span_id, q.position, t.span_id, t.refused_as_unknown
    FROM suspects AS q JOIN tool_steps AS t ON t.trajectory_id = q.trajectory_id AND t.turn_span_id = q.span_id AND lower(t.tool_name) = lower(q.name)
        AND (t.tool_call_id = q.id) IS NULL AND t.of_name <= 100
    UNION ALL
    SELECT q.trajectory_id, q.trace_id, q.span_id, q.position, t.span_id, t.refused_as_unknown
    FROM suspects AS q JOIN tool_steps AS t ON t.trajectory_id = q.trajectory_id AND t.turn_span_id IS NULL AND t.tool_call_id = q.id AND t.step_index > q.step_index AND t.of_id <= 100
),
became AS (
    SELECT trajectory_id, trace_id, span_id, position, list_sort(list(DISTINCT related)) AS related, bool_or(refused_as_unknown) AS refused_as_unknown FROM links GROUP BY ALL
),
answered AS (
    SELECT q.*, coalesce(l.related, []) AS related, coalesce(l.refused_as_unknown, FALSE) AS refused_as_unknown
    FROM suspects AS q
    LEFT JOIN became AS l USING (trajectory_id, trace_id, span_id, position)
),
calls AS (
    SELECT *, 'the model requested ' AS did, 'the tools offered to the model were not recorded' AS blind FROM answered
    UNION ALL BY NAME
    SELECT
        u.trajectory_id, u.trace_id, u.span_id, u.name, u.refused_as_unknown, a.offer, k.is_framework,
        CASE WHEN a.offer IS NOT NULL THEN o.name IS NOT NULL END AS is_offered,
        0 AS position, [] AS related, 'the run called ' AS did, 'neither model calls nor a list of tools were recorded' AS blind
    FROM unasked AS u
    JOIN kinds_of_tools AS k USING (name)
    LEFT JOIN offer_sizes AS r ON r.offer = hash(u.trajectory_id)
    LEFT JOIN offer_sizes AS a ON a.offer = coalesce(r.offer, u.offer)
    LEFT JOIN offered_names AS o ON o.offer = a.offer AND o.name = u.name
),
unknown AS (
    SELECT *
    FROM calls
    -- Hand-offs and final answers are at times not recorded among the tools.
    WHERE is_offered IS DISTINCT FROM TRUE AND (refused_as_unknown OR (is_offered IS NOT NULL AND NOT is_framework))
),
-- Unknown names beside what was offered instead. Of very many, the nearest is not looked for: each is compared with each.
misnamed AS MATERIALIZED (
    SELECT trajectory_id, name, offer
    FROM (SELECT DISTINCT trajectory_id, name, offer FROM unknown)
    JOIN offer_sizes USING (offer)
    QUALIFY sum(size) OVER (PARTITION BY trajectory_id) <= 100000
),
-- Names in one spelling: lower case, words joined by _, in the singular.
spelled AS (
    SELECT name, array_to_string(list_transform(
        string_split_regex(lower(regexp_replace(name, '([a-z0-9])([A-Z])', '\1_\2', 'g')), '[^a-z0-9]+'),
        lambda w: regexp_replace(regexp_replace(w, 'ies$', 'y'), '([^s])s$', '\1')), '_') AS word
    FROM (SELECT name FROM misnamed UNION SELECT name FROM offered_names SEMI JOIN misnamed USING (offer))
),
nearest AS (
    SELECT trajectory_id, name, offer, arg_min(names, distance) AS near
    FROM (
        SELECT
            m.*, list(o.name ORDER BY o.place) AS names,
            -- The name without its namespace, or with one that is not its own.
            CASE WHEN ends_with(b.word, '_' || a.word) OR ends_with(a.word, '_' || b.word) THEN 1 ELSE damerau_levenshtein(b.word, a.word) END AS distance
        FROM misnamed AS m
        JOIN (SELECT offer, unnest(offered) AS name, generate_subscripts(offered, 1) AS place FROM all_offers) AS o USING (offer)
        JOIN spelled AS a ON a.name = m.name
        JOIN spelled AS b ON b.name = o.name
        GROUP BY ALL
    )
    WHERE distance <= greatest(2, length(name) // 4)
    GROUP BY ALL
),
unknown_findings AS (
    SELECT
        u.trajectory_id, u.trace_id, u.span_id, u.position, u.name, u.related,
        -- Of many equally near ones none: the trace does not say which.
        CASE WHEN len(n.near) BETWEEN 1 AND 3 THEN list_transform(n.near, lambda x: left(x, 80)) END AS meant,
        u.did || left(u.name, 80) || CASE
            WHEN u.is_offered IS NULL THEN ', which the runtime refused as unknown'
            WHEN o.size = 0 THEN ', and no tools were offered'
            ELSE ', which is not among the ' || o.size || ' tool' || CASE WHEN o.size = 1 THEN '' ELSE 's' END || ' offered' END AS what
    FROM unknown AS u
    LEFT JOIN offer_sizes AS o USING (offer)
    LEFT JOIN nearest AS n USING (trajectory_id, name, offer)
),
-- Requests that nothing answers.
unanswered AS (
    SELECT c.*, n.times AS missing
    FROM calls AS c
    JOIN missing AS n USING (trajectory_id, plain_name)
    ANTI JOIN unknown USING (trajectory_id, span_id, position)
    -- A hand-off or a final answer ends the agent's work: the other calls of the turn are dropped by design.
    ANTI JOIN (SELECT trajectory_id, span_id FROM calls WHERE is_framework) USING (trajectory_id, span_id)
    WHERE len(c.related) = 0 AND NOT c.is_provider
),
read_results AS MATERIALIZED (
    SELECT
        trajectory_id, step_index, input_messages IS NOT NULL AS captured,
        list_filter(flatten(list_transform(from_json(input_messages, '[{"parts":[{"type":"VARCHAR","id":"VARCHAR","name":"VARCHAR"}]}]'), lambda m: coalesce(m.parts, []))),
            lambda p: p.type = 'tool_call_response') AS results
    FROM steps SEMI JOIN unanswered USING (trajectory_id)
    WHERE kind = 'model'
),
-- Whether something came after a request is a matter of the last such thing: of all model calls, of those whose input
-- was not captured, and of those that read a result of its id, of its name, or of its name without an id.
last_reads AS (SELECT trajectory_id, max(step_index) AS step_index, max(step_index) FILTER (WHERE NOT captured) AS hidden FROM read_results GROUP BY trajectory_id),
last_results AS MATERIALIZED (
    SELECT trajectory_id, result.id AS id, result.name AS name, max(step_index) AS step_index
    FROM (SELECT trajectory_id, step_index, unnest(results) AS result FROM read_results) GROUP BY ALL
),
last_results_by_id AS (SELECT trajectory_id, id, max(step_index) AS step_index FROM last_results GROUP BY trajectory_id, id),
last_results_by_name AS (SELECT trajectory_id, name, max(step_index) AS step_index, max(step_index) FILTER (WHERE id IS NULL) AS without_id FROM last_results GROUP BY trajectory_id, name),
unread AS (
    SELECT
        u.trajectory_id, u.trace_id, u.span_id, u.position, u.step_index, u.name, u.plain_name, u.missing,
        (r.step_index > u.step_index) IS NOT TRUE AS is_last, (r.hidden > u.step_index) IS NOT TRUE AS captured
    FROM unanswered AS u
    LEFT JOIN last_reads AS r USING (trajectory_id)
    LEFT JOIN last_results_by_id AS i ON i.trajectory_id = u.trajectory_id AND i.id = u.id
    LEFT JOIN last_results_by_name AS n ON n.trajectory_id = u.trajectory_id AND n.name = u.name
    WHERE (i.step_index > u.step_index) IS NOT TRUE AND (CASE WHEN u.id IS NULL THEN n.step_index ELSE n.without_id END > u.step_index) IS NOT TRUE
),
never_executed AS (
    SELECT
        *,
        CASE
            WHEN trajectory_id NOT IN (SELECT trajectory_id FROM tool_steps UNION ALL SELECT trajectory_id FROM read_results WHERE len(results) > 0)
                THEN 'requests were recorded, executions and results were not'
            WHEN NOT captured THEN 'the input of later model calls was not captured'
        END AS blind
    FROM unread
    -- Which one of several was lost, only ids tell; without them the last.
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, plain_name ORDER BY step_index DESC, position DESC) <= missing
),
-- What became of the calls that they may speak of.
doubted AS MATERIALIZED (
    SELECT
        c.*, r.session_id, r.tenant_id, r.start_time, r.user_input,
        count(t.span_id) AS called,
        coalesce(bool_or(t.effect = 'unknown'), FALSE) AS unclear,
        list_sort(list_distinct(list(t.span_id)))[:100] AS related,
        max(t.step_index) AS last_index,
        arg_max('step ' || t.step_index || ' ' || CASE t.status WHEN 'timeout' THEN 'timed out' WHEN 'unfinished' THEN 'never ended' WHEN 'cancelled' THEN 'was cancelled' ELSE 'failed' || coalesce(' with ' || left(t.error_type, 60), '') END, t.step_index) AS ending
    FROM (SELECT DISTINCT saying, trajectory_id, tool_name, candidates, form, by_agent, words FROM unsettled) AS c
    JOIN trajectories AS r USING (trajectory_id)
    LEFT JOIN tool_steps AS t ON t.trajectory_id = c.trajectory_id AND list_contains(c.candidates, t.tool_name) AND t.tool_ran IS DISTINCT FROM FALSE
    GROUP BY ALL
),
earlier_runs AS (
    SELECT d.saying, count(DISTINCT o.trajectory_id) AS runs, bool_or(t.effect <> 'no') AS happened
    FROM doubted AS d
    JOIN trajectories AS o ON o.session_id = d.session_id AND o.tenant_id IS NOT DISTINCT FROM d.tenant_id
        AND o.trajectory_id <> d.trajectory_id AND coalesce(o.start_time <= d.start_time, TRUE)
    LEFT JOIN tool_steps AS t ON t.trajectory_id = o.trajectory_id AND list_contains(d.candidates, t.tool_name)
    GROUP BY d.saying
),
-- What the first model call was given: the history that came with the run.
histories AS (
    SELECT
        trajectory_id, input IS NOT NULL AS captured,
        len(list_filter(messages, lambda m: m.role = 'assistant')) AS assistant_turns,
        len(list_filter(messages, lambda m: m.role = 'user')) AS user_turns,
        list_filter(flatten(list_transform(messages, lambda m: coalesce(m.parts, []))), lambda p: p.type IN ('tool_call', 'tool_call_response')) AS calls
    FROM (
        SELECT trajectory_id, arg_min({'input': input_messages}, (step_index, span_id)).input AS input, from_json(input, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","name":"VARCHAR"}]}]') AS messages
        FROM steps SEMI JOIN doubted USING (trajectory_id) WHERE kind = 'model'
        GROUP BY trajectory_id
    )
),
-- Said in the passive, a claim may repeat what a tool reported; said of oneself, another change may have brought it about.
repeated AS (
    SELECT DISTINCT d.saying
    FROM doubted AS d
    JOIN tool_steps AS t USING (trajectory_id)
    WHERE d.form <> 'literal' AND len(d.words) > 0
      AND (NOT d.by_agent OR (t.mutability IS DISTINCT FROM 'read_only' AND t.status = 'ok'))
      AND regexp_matches(t.observation, '\b(?:' || array_to_string(d.words, '|') || ')\b')
),
-- What a tool's name speaks of: its words behind the verb.
nouns AS (
    SELECT tool_name, list_transform(
        regexp_extract_all(lower(regexp_replace(regexp_replace(tool_name, '^.*__', ''), '([a-z0-9])([A-Z])', '\1_\2', 'g')), '[a-z0-9]+')[2:],
        lambda w: regexp_replace(regexp_replace(w, 'ies$', 'y'), '([^s])s$', '\1')) AS nouns
    FROM (SELECT tool_name FROM doubted UNION SELECT tool_name FROM tool_steps)
),
-- A successful read after an unclear call, of what the call's name speaks of.
looked AS (
    SELECT DISTINCT d.saying
    FROM doubted AS d
    JOIN tool_steps AS t ON t.trajectory_id = d.trajectory_id AND t.step_index > d.last_index AND t.status = 'ok' AND t.mutability = 'read_only'
    JOIN nouns AS a ON a.tool_name = d.tool_name
    JOIN nouns AS b ON b.tool_name = t.tool_name
    WHERE d.unclear AND (list_has_any(a.nouns, b.nouns) OR coalesce(list_contains(($checks::MAP(VARCHAR, VARCHAR[]))[d.tool_name], t.tool_name), FALSE))
),
-- The tool that the text speaks of was asked for, and may have run unseen.
unseen AS (
    SELECT DISTINCT d.saying
    FROM doubted AS d
    JOIN never_executed AS n ON n.trajectory_id = d.trajectory_id AND list_contains(d.candidates, n.name)
    WHERE n.blind IS NOT NULL
),
doubts AS (
    SELECT
        d.*,
        CASE
            WHEN d.called > 0 THEN NULL
            WHEN h.trajectory_id IS NULL AND d.user_input IS NULL THEN 'no model call and no user input were recorded'
            WHEN NOT h.captured THEN 'the input of the first model call was not captured'
            WHEN h.assistant_turns > 0 AND len(h.calls) = 0 AND coalesce(e.runs, 0) < h.user_turns - 1
                THEN 'the run begins in the middle of a conversation whose tool calls were not recorded'
            WHEN d.saying IN (FROM unseen) THEN 'the tool was requested, and what became of that was not recorded'
        END AS blind
    FROM doubted AS d
    LEFT JOIN earlier_runs AS e USING (saying)
    LEFT JOIN histories AS h USING (trajectory_id)
    ANTI JOIN repeated USING (saying)
    ANTI JOIN looked USING (saying)
    WHERE NOT coalesce(e.happened, FALSE)
      AND len(list_filter(coalesce(h.calls, []), lambda p: list_contains(d.candidates, p.name))) = 0
),
claim_verdicts AS (
    SELECT
        c.*, d.blind, CASE WHEN d.called = 0 THEN 'claimed_not_called' ELSE 'claimed_despite_failure' END AS kind,
        CASE
            WHEN c.source = 'thought' THEN 1
            WHEN d.called > 0 THEN CASE WHEN d.unclear THEN 2 ELSE 3 END
            WHEN c.form = 'literal' OR (c.form <> 'verb' AND c.mutability IN ('mutating', 'idempotent')) THEN 3
            ELSE 2
        END AS level
    FROM unsettled AS c
    JOIN doubts AS d USING (saying)
    WHERE d.called = 0 OR c.success
),
-- One finding per run and tool: a text that says it twice has made it up once.
claim_findings AS (
    SELECT
        trajectory_id, tool_name, kind,
        arg_max({'trace_id': trace_id, 'span_id': span_id, 'level': level, 'said': text, 'saying': saying}, (level, form = 'literal', -claim)) AS f
    FROM claim_verdicts
    WHERE blind IS NULL
    GROUP BY ALL
),
-- Results that the model wrote itself, compared by letters and digits: quoting and escapes make no difference.
written AS MATERIALIZED (
    SELECT DISTINCT trajectory_id, trace_id, span_id, position, text, left(regexp_replace(lower(text), '[^a-z0-9]+', '', 'g'), 200) AS plain
    FROM claims
    WHERE form = 'result' AND source = 'answer'
),
recorded AS MATERIALIZED (
    SELECT DISTINCT
        trajectory_id, kind = 'tool' AND observation IS NULL AND tool_ran IS DISTINCT FROM FALSE AS is_unseen,
        left(regexp_replace(lower(coalesce(observation, input_messages)::VARCHAR), '\\[nrtu"\\/]|[^a-z0-9]+', '', 'g'), 100000) AS plain
    FROM steps SEMI JOIN written USING (trajectory_id)
),
fabricated AS (
    SELECT w.*, w.trajectory_id IN (SELECT trajectory_id FROM recorded WHERE is_unseen) AS some_unseen
    FROM written AS w
    ANTI JOIN recorded AS r ON r.trajectory_id = w.trajectory_id AND contains(r.plain, w.plain)
),
found AS (
    SELECT
        trajectory_id, trace_id, span_id, 'unknown_tool' AS kind, 'error' AS severity,
        what || coalesce('; it probably meant ' || CASE WHEN len(meant) > 1 THEN array_to_string(meant[:-2], ', ') || ' or ' ELSE '' END || meant[-1], '') AS message,
        related AS related_span_ids, name AS tool_name, NULL::VARCHAR AS said, meant, position
    FROM unknown_findings
    UNION ALL
    SELECT
        trajectory_id, trace_id, span_id, 'never_executed', CASE WHEN is_last THEN 'note' ELSE 'error' END,
        'the model requested ' || left(name, 80) || ', and neither an execution nor a result nor a refusal of it was recorded' || CASE WHEN is_last THEN '; the run ended there' ELSE '; the run went on without it' END,
        [], name, NULL, NULL, position
    FROM never_executed
    WHERE blind IS NULL
    UNION ALL
    SELECT
        c.trajectory_id, f.trace_id, f.span_id, kind, ['note', 'warning', 'error'][f.level],
        'the agent says "' || CASE WHEN length(f.said) > 150 THEN left(f.said, 147) || '...' ELSE f.said END || '", ' || CASE
            WHEN kind = 'claimed_not_called' THEN 'but ' || left(c.tool_name, 80) || ' was never called'
            WHEN d.unclear THEN 'but whether ' || left(c.tool_name, 80) || ' took effect was not known (' || d.ending || '), and nothing checked it'
            ELSE 'but no call of ' || left(c.tool_name, 80) || ' took effect (' || d.ending || ')' END,
        d.related, c.tool_name, f.said, NULL, 0
    FROM claim_findings AS c
    JOIN doubted AS d ON d.saying = c.f.saying
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
        a.related, e.tool_name, NULL, NULL, e.position
    FROM argument_errors AS e
    -- Requests only: calls that break a configured schema are found by tool_arguments.
    JOIN answered AS a USING (trajectory_id, span_id, position)
    -- The first kind that applies to a call is its finding; an unknown tool has no schema to break.
    ANTI JOIN never_executed USING (trajectory_id, span_id, position)
),
silent AS (SELECT trajectory_id FROM trajectories WHERE final_response IS NULL),
unevaluable AS (
    SELECT trajectory_id, 'unknown_tool' AS concerned, blind AS reason FROM calls WHERE is_offered IS NULL AND NOT is_framework AND NOT refused_as_unknown
    UNION
    -- Nor is a request known that nothing answered.
    SELECT trajectory_id, 'unknown_tool', 'what a model call requested was not captured'
    FROM steps WHERE kind = 'model' AND duplicate_of IS NULL AND finish_reason = 'tool_call' AND output_messages IS NULL
    UNION SELECT trajectory_id, 'never_executed', blind FROM never_executed WHERE blind IS NOT NULL AND NOT is_last
    UNION SELECT trajectory_id, 'claimed_not_called', blind FROM claim_verdicts WHERE blind IS NOT NULL
    UNION SELECT trajectory_id, 'claimed_not_called', 'the text of the assistant was not captured'
    FROM silent
    -- The last text is the one that counts.
    ANTI JOIN (
        SELECT trajectory_id FROM steps SEMI JOIN silent USING (trajectory_id) WHERE kind = 'model' OR output_messages IS NOT NULL
        GROUP BY trajectory_id HAVING arg_max(output_messages IS NOT NULL, coalesce(step_index, -1))
    ) USING (trajectory_id)
    UNION SELECT trajectory_id, 'fabricated_result', 'the results of some tool calls were not captured' FROM fabricated WHERE some_unseen
)
SELECT trajectory_id, trace_id, span_id, kind, severity, message, related_span_ids, tool_name, said, meant, NULL::JSON AS evidence
FROM found
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], NULL, NULL, NULL, json_object('kind', concerned)
FROM unevaluable
ORDER BY trajectory_id, kind, span_id, tool_name, message, evidence, related_span_ids
