/* +++
name       = "duplicate_mutations"
returns    = "findings"
scope      = "session"
severity   = "error"
question   = "Did the agent make the same change to the world twice?"
reads      = ["steps", "trajectories"]
limits     = "Arguments that differ in a timestamp or a nonce count as different calls unless ignore_arguments names them. A read-only call without arguments counts as a check of what its name speaks of. Ids in observations are recognised by their key or their shape. A decimal number with more than 17 digits is compared as a double."
references = [
    "design.md, section 5, duplicate_mutations",
    "IETF draft-ietf-httpapi-idempotency-key-header: a key with another payload is a fault of the client",
]

[params.ignore_arguments]
type    = "VARCHAR[]"
default = []
help    = "Keys of arguments, at any depth, that make no difference."

[params.idempotency_keys]
type    = "VARCHAR[]"
default = []
help    = "Keys of arguments that make a repeated call harmless; from [tools]."

[params.checks]
type    = "MAP(VARCHAR, VARCHAR[])"
default = {}
help    = "Tool to the read-only tools that show whether it took effect; from [tools]."

[params.inverse]
type    = "MAP(VARCHAR, VARCHAR[])"
default = {}
help    = "Tool to the tools that undo it; from [tools]."

[params.identity]
type    = "MAP(VARCHAR, VARCHAR[])"
default = {}
help    = "Tool to the arguments that make two of its calls the same change; from [tools]."

[columns]
trajectory_id    = "run of the last execution"
trace_id         = "its trace"
span_id          = "last execution"
kind             = "confirmed, unverified_retry, checked_retry, replayed, key_reuse, same_in_words or not_evaluable"
severity         = "error, warning or note"
message          = "what ran, when, how it ended, what lay in between"
related_span_ids = "the earlier executions, in order"
tool_name        = "tool"
executions       = "number of executions"
scope            = "run or session: how far apart they lie"
lowered          = "why the severity is lower than the verdict's own: across_runs, user_message, mutability_unknown, idempotent"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
WITH runs AS (
    -- Runs that may hold each other's repeats: those of one session, never of two tasks or two trials.
    SELECT
        trajectory_id, session_id, start_time AS run_start,
        CASE
            WHEN session_id IS NULL THEN trajectory_id
            ELSE to_json({'tenant': tenant_id, 'session': session_id, 'task': task_id, 'trial': trial})::VARCHAR
        END AS scope_key
    FROM trajectories
),
-- Executions that may have changed the world. This is the only look at all steps, so it takes few columns, and of the
-- arguments only a hash of their outermost values that is equal wherever the forms below are: numbers as doubles, texts
-- trimmed, nested values as one. Where the configuration or an idempotency key takes values away, it says nothing (0).
mutations AS (
    SELECT
        r.scope_key, r.run_start, r.session_id, s.tool_name, s.trajectory_id, s.trace_id, s.span_id, s.mutability,
        s.arguments_hash IS NULL AND (s.arguments IS NULL OR contains(s.arguments::VARCHAR, 'REDACTED') OR contains(s.arguments::VARCHAR, 'redacted')) AS blind,
        CASE
            WHEN s.arguments_hash IS NOT NULL THEN hash(s.arguments_hash)
            WHEN s.idempotency_key IS NOT NULL OR len($ignore_arguments::VARCHAR[]) + len($idempotency_keys::VARCHAR[]) > 0
                OR ($identity::MAP(VARCHAR, VARCHAR[]))[s.tool_name] IS NOT NULL OR contains(s.arguments::VARCHAR, 'dempotency') THEN 0
            ELSE hash(list_sort(list_transform(
                list_transform(json_extract_string(s.arguments, '$.*'), lambda v: trim(v, chr(32) || chr(9) || chr(10) || chr(13) || chr(160))),
                lambda v: CASE
                    WHEN v < ':' AND TRY_CAST(v AS DOUBLE) IS NOT NULL THEN hash(TRY_CAST(v AS DOUBLE))
                    WHEN starts_with(v, '{') OR starts_with(v, '[') THEN 1
                    ELSE hash(nfc_normalize(v))
                END)))
        END AS coarse
    FROM steps AS s
    JOIN runs AS r USING (trajectory_id)
    WHERE s.kind = 'tool' AND s.tool_name IS NOT NULL
      AND s.tool_ran IS DISTINCT FROM FALSE AND s.effect IS DISTINCT FROM 'no' AND s.mutability IS DISTINCT FROM 'read_only'
),
-- Tools whose calls in one run or session may repeat each other: everything after this works on these few.
suspects AS MATERIALIZED (
    SELECT scope_key, tool_name
    FROM (SELECT scope_key, tool_name, coarse, count(*) AS n, bool_or(blind) AS blind FROM mutations GROUP BY scope_key, tool_name, coarse)
    GROUP BY scope_key, tool_name
    HAVING max(n) > 1 OR (sum(n) > 1 AND bool_or(blind))
),
suspected AS MATERIALIZED (
    SELECT scope_key, run_start, tool_name, trajectory_id, trace_id, span_id
    FROM mutations
    SEMI JOIN suspects USING (scope_key, tool_name)
),
calls AS MATERIALIZED (
    SELECT
        row_number() OVER (ORDER BY m.scope_key, m.tool_name, m.run_start, m.trajectory_id, s.step_index, m.trace_id, m.span_id) AS call,
        m.scope_key, m.tool_name, m.trajectory_id, m.trace_id, m.span_id, s.step_index, s.mutability, s.agent_name, s.turn_span_id,
        s.start_time, s.end_time, s.arguments, s.arguments_hash, s.observation, s.idempotency_key,
        {'run_start': m.run_start, 'trajectory_id': m.trajectory_id, 'step_index': s.step_index, 'span_id': m.span_id} AS place,
        coalesce(s.effect, CASE WHEN s.status = 'ok' THEN 'yes' ELSE 'unknown' END) AS effect,
        CASE s.status
            WHEN 'ok' THEN 'succeeded' WHEN 'timeout' THEN 'timed out' WHEN 'unfinished' THEN 'never ended' WHEN 'cancelled' THEN 'was cancelled'
            ELSE 'failed' || coalesce(' with ' || left(s.error_type, 60), '')
        END AS ending,
        -- What leaves good reason to think that it took effect; other exceptions mostly come before the effect.
        coalesce(s.effect_reason IN ('timeout', 'unfinished', 'cancelled', 'connection_lost', 'server_error'), FALSE) AS likely
    FROM suspected AS m
    JOIN steps AS s ON s.trajectory_id = m.trajectory_id AND s.trace_id = m.trace_id AND s.span_id = m.span_id AND s.kind = 'tool'
),
-- Arguments as paths and values in one spelling: NFC, no outer white space, 1.0 as 1 (by its digits, never as a double).
leaves AS (
    SELECT
        c.call, c.tool_name, c.idempotency_key, nfc_normalize(leaf.fullkey) AS path,
        string_split_regex(leaf.fullkey, '[.\[\]"]+') AS keys,
        CASE leaf.type WHEN 'VARCHAR' THEN 'text' WHEN 'BOOLEAN' THEN 'flag' WHEN 'NULL' THEN 'null' WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'list' ELSE 'number' END AS type,
        CASE leaf.type
            WHEN 'VARCHAR' THEN nfc_normalize(trim(leaf.atom ->> '$', chr(32) || chr(9) || chr(10) || chr(13) || chr(160)))
            WHEN 'OBJECT' THEN '' WHEN 'ARRAY' THEN '' WHEN 'NULL' THEN 'null' WHEN 'BOOLEAN' THEN leaf.atom::VARCHAR
            ELSE CASE
                WHEN contains(leaf.atom::VARCHAR, 'e') THEN coalesce(nullif(TRY_CAST(leaf.atom::VARCHAR AS DECIMAL(38, 0)), 0)::VARCHAR, leaf.atom::VARCHAR)
                ELSE regexp_replace(regexp_replace(leaf.atom::VARCHAR, '(\.\d*?)0+$', '\1'), '\.$', '')
            END
        END AS value
    FROM calls AS c, json_tree(c.arguments) AS leaf
    WHERE leaf.atom IS NOT NULL OR leaf.type = 'NULL'
       OR (leaf.type = 'OBJECT' AND leaf.value::VARCHAR = '{}') OR (leaf.type = 'ARRAY' AND leaf.value::VARCHAR = '[]')
),
marked_leaves AS (
    SELECT
        *,
        regexp_matches(value, '\[REDACTED|__REDACTED__|<REDACTED', 'i') AS hidden,
        list_has_any(keys, list_concat($idempotency_keys::VARCHAR[], ['idempotency_key', 'idempotencyKey', 'Idempotency-Key']))
            OR (type IN ('text', 'number') AND value IS NOT DISTINCT FROM idempotency_key) AS is_key,
        -- Named arguments make the call; a tool without such a list is made by all.
        list_has_any(keys, $ignore_arguments::VARCHAR[])
            OR (($identity::MAP(VARCHAR, VARCHAR[]))[tool_name] IS NOT NULL AND NOT list_contains(($identity::MAP(VARCHAR, VARCHAR[]))[tool_name], keys[2])) AS is_ignored
    FROM leaves
),
forms AS (
    SELECT
        c.call,
        coalesce(list_sort(list(m.path || chr(31) || m.type || chr(31) || m.value) FILTER (WHERE NOT m.is_key AND NOT m.is_ignored)), []) AS strict_form,
        coalesce(list_sort(list(m.path || chr(31) || m.value) FILTER (WHERE NOT m.is_key AND NOT m.is_ignored)), []) AS word_form,
        coalesce(list_sort(list(m.path || chr(31) || m.type || chr(31) || m.value) FILTER (WHERE NOT m.is_key AND NOT m.is_ignored AND NOT m.hidden)), []) AS seen_form,
        coalesce(list_sort(list(DISTINCT lower(m.value)) FILTER (WHERE NOT m.is_key AND m.type IN ('text', 'number') AND m.value <> '' AND NOT m.hidden)), []) AS argument_values,
        coalesce(list_sort(list(DISTINCT lower(m.value)) FILTER (WHERE NOT m.is_key AND NOT m.is_ignored AND m.type IN ('text', 'number') AND m.value <> '' AND NOT m.hidden)), []) AS identifying_values,
        coalesce(bool_or(m.hidden) FILTER (WHERE NOT m.is_key AND NOT m.is_ignored), FALSE) AS has_hidden,
        min(m.value) FILTER (WHERE m.is_key AND m.type IN ('text', 'number')) AS key_argument,
        left(coalesce(array_to_string(list_transform(
            list_sort(list({'p': m.path, 'v': m.value}) FILTER (WHERE NOT m.is_ignored)),
            lambda e: regexp_replace(e.p, '^\$\.?', '') || CASE WHEN e.p = '$' THEN '' ELSE '=' END || CASE WHEN length(e.v) > 40 THEN left(e.v, 37) || '...' ELSE e.v END), ', '), ''), 160) AS words
    FROM calls AS c
    LEFT JOIN marked_leaves AS m USING (call)
    GROUP BY c.call
),
executions AS MATERIALIZED (
    SELECT
        c.*, f.* EXCLUDE (call),
        -- Redacted and cut arguments are known by the keyed hash of the originals, and by nothing else.
        c.arguments_hash IS NOT NULL AS hashed,
        CASE WHEN c.arguments_hash IS NOT NULL THEN [c.arguments_hash] ELSE f.strict_form END AS same_form,
        c.arguments_hash IS NULL AND (c.arguments IS NULL OR f.has_hidden) AS blind,
        coalesce(c.idempotency_key, f.key_argument) AS key,
        c.tool_name || '(' || CASE WHEN c.arguments IS NULL THEN 'arguments not captured' ELSE f.words END || ')' AS call_words
    FROM calls AS c
    JOIN forms AS f USING (call)
),
-- Four ways to be a repeat: equal arguments within a run, equal arguments in several runs of a session, arguments equal
-- in words only, one idempotency key. A repeat within a run stays that run's, whatever the session's other runs did.
memberships AS (
    SELECT 'same' AS way, 'a' || dense_rank() OVER (ORDER BY scope_key, tool_name, trajectory_id, hashed, same_form) AS group_id, call, place, effect, same_form, trajectory_id
    FROM executions
    SEMI JOIN (
        SELECT trajectory_id, tool_name, hashed, same_form FROM executions WHERE NOT blind
        GROUP BY trajectory_id, tool_name, hashed, same_form HAVING count(*) > 1
    ) USING (trajectory_id, tool_name, hashed, same_form)
    WHERE NOT blind
    UNION ALL
    SELECT 'session', 'b' || dense_rank() OVER (ORDER BY scope_key, tool_name, hashed, same_form), call, place, effect, same_form, trajectory_id
    FROM executions
    SEMI JOIN (
        SELECT scope_key, tool_name, hashed, same_form FROM executions WHERE NOT blind
        GROUP BY scope_key, tool_name, hashed, same_form HAVING count(DISTINCT trajectory_id) > 1
    ) USING (scope_key, tool_name, hashed, same_form)
    WHERE NOT blind
    UNION ALL
    SELECT 'words', 'c' || dense_rank() OVER (ORDER BY scope_key, tool_name, word_form), call, place, effect, same_form, trajectory_id
    FROM executions
    SEMI JOIN (
        SELECT scope_key, tool_name, word_form FROM executions WHERE NOT blind AND NOT hashed
        GROUP BY scope_key, tool_name, word_form HAVING count(DISTINCT strict_form) > 1
    ) USING (scope_key, tool_name, word_form)
    WHERE NOT blind AND NOT hashed
    UNION ALL
    SELECT 'key', 'd' || dense_rank() OVER (ORDER BY scope_key, tool_name, key), call, place, effect, same_form, trajectory_id
    FROM executions
    SEMI JOIN (
        SELECT scope_key, tool_name, key FROM executions WHERE NOT blind AND key IS NOT NULL
        GROUP BY scope_key, tool_name, key
        HAVING count(DISTINCT word_form) FILTER (WHERE NOT hashed) > 1 OR count(DISTINCT arguments_hash) > 1
    ) USING (scope_key, tool_name, key)
    WHERE NOT blind
),
-- Neighbours in order of time, and neighbours among those that surely took effect: an unknown one in between hides nothing.
pairs AS (
    SELECT
        way, group_id, lag(call) OVER earlier AS a, call AS b, same_form <> lag(same_form) OVER earlier AS differ, TRUE AS adjacent,
        trajectory_id <> lag(trajectory_id) OVER earlier AS across_runs
    FROM memberships
    WINDOW earlier AS (PARTITION BY group_id ORDER BY place)
    UNION ALL
    SELECT way, group_id, lag(call) OVER earlier, call, FALSE, FALSE, trajectory_id <> lag(trajectory_id) OVER earlier
    FROM memberships
    WHERE way IN ('same', 'session') AND effect = 'yes'
    WINDOW earlier AS (PARTITION BY group_id ORDER BY place)
),
paired AS (
    SELECT way, group_id, a, b, bool_or(differ) AS differ, bool_or(adjacent) AS adjacent
    FROM pairs
    WHERE a IS NOT NULL AND (across_runs OR way <> 'session')
    GROUP BY way, group_id, a, b
),
members AS MATERIALIZED (
    SELECT * FROM executions SEMI JOIN memberships USING (call)
),
-- Ids that a call gave back: what stands under a key that says so, and what looks like one inside of text.
returned AS (
    SELECT m.call, leaf.key, leaf.type, leaf.atom ->> '$' AS value
    FROM members AS m, json_tree(CASE
        WHEN json_type(m.observation) = 'VARCHAR' AND json_valid(m.observation ->> '$') THEN (m.observation ->> '$')::JSON ELSE m.observation END) AS leaf
    WHERE leaf.atom IS NOT NULL
),
candidate_ids AS (
    SELECT call, lower(value) AS id
    FROM returned
    WHERE regexp_matches(key, '(?i)(?:^|[_-])(?:id|ids|number|no|ref|reference|confirmation|po|uuid|guid|locator|pnr|key)$|(?-i)(?:[a-z](?:Id|Ids|ID|Number|Ref|Reference|Key))$|(?i)(?:confirmation|booking|order|tracking|reservation|ticket)[_-]?code$')
      -- These name the request, not what it made.
      AND NOT regexp_matches(key, '(?i)(?:request|trace|span|correlation|session|call)[_-]?(?:id|number|key)$')
      AND regexp_matches(value, '^\S{1,80}$') AND regexp_matches(value, '[A-Za-z0-9]') AND type <> 'BOOLEAN'
    UNION
    SELECT call, lower(unnest(list_concat(
        regexp_extract_all(value, '\b[A-Za-z]{1,12}[-_#]\d[A-Za-z0-9_-]*'),
        regexp_extract_all(value, '\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b'),
        list_filter(regexp_extract_all(value, '\b[A-Z0-9]{5,16}\b'), lambda word: regexp_matches(word, '[A-Z]') AND regexp_matches(word, '\d') AND NOT regexp_matches(word, '^\d+[A-Z]{1,3}$')))))
    FROM returned WHERE type = 'VARCHAR'
),
ids AS (
    SELECT c.call, list_sort(list(DISTINCT c.id)) AS ids
    FROM candidate_ids AS c
    JOIN members AS m ON m.call = c.call
    WHERE NOT list_contains(m.argument_values, c.id)
      AND NOT list_bool_or(list_append(list_transform(m.argument_values, lambda v: contains(v, c.id)), FALSE))
    GROUP BY c.call
),
-- The runs in which something may lie in between.
companions AS MATERIALIZED (
    SELECT trajectory_id, scope_key, run_start FROM runs SEMI JOIN members USING (scope_key)
),
-- The words of tools' names, without a server's prefix; the first is the verb, unless it is a plural (orders.place).
tool_names AS (
    SELECT tool_name,
        list_filter(string_split_regex(lower(regexp_replace(regexp_replace(tool_name, '^.*__', ''), '([a-z0-9])([A-Z])', '\1_\2', 'g')), '[^a-z0-9]+'),
            lambda w: w <> '' AND NOT list_contains(['tool', 'api', 'v1', 'v2', 'the', 'a', 'to', 'for', 'by', 'of', 'in', 'on', 'with', 'new', 'all', 'my', 'and', 'or', 'id', 'async'], w)) AS words
    FROM (SELECT DISTINCT tool_name FROM steps SEMI JOIN companions USING (trajectory_id) WHERE kind = 'tool' AND tool_name IS NOT NULL)
),
named AS (
    SELECT
        tool_name,
        CASE WHEN regexp_matches(words[1], '[^s]s$') AND len(words) > 1 THEN words[-1] ELSE words[1] END AS verb,
        list_transform(
            CASE WHEN regexp_matches(words[1], '[^s]s$') AND len(words) > 1 THEN words[:-2] WHEN len(words) > 1 THEN words[2:] ELSE words END,
            lambda w: regexp_replace(regexp_replace(w, 'ies$', 'y'), '([^s])s$', '\1')) AS nouns
    FROM tool_names
),
-- Which tools may check, and which may undo, which.
kinships AS (
    SELECT
        t.tool_name, h.tool_name AS helper,
        coalesce(list_contains(($checks::MAP(VARCHAR, VARCHAR[]))[t.tool_name], h.tool_name), FALSE) AS named_check,
        coalesce(list_contains(($inverse::MAP(VARCHAR, VARCHAR[]))[t.tool_name], h.tool_name), FALSE) AS named_inverse,
        list_has_any(t.nouns, h.nouns) AS shares_noun,
        list_contains(
            [
                'place>cancel', 'place>delete', 'place>void', 'add>remove', 'add>delete', 'book>cancel', 'create>delete', 'create>cancel', 'create>remove', 'create>close', 'reserve>release', 'reserve>cancel',
                'order>cancel', 'schedule>cancel', 'schedule>unschedule', 'submit>cancel', 'submit>withdraw', 'issue>revoke', 'issue>cancel', 'issue>void', 'charge>refund', 'charge>void', 'pay>refund', 'purchase>refund',
                'purchase>cancel', 'buy>sell', 'buy>refund', 'buy>cancel', 'sell>buy', 'deposit>withdraw', 'withdraw>deposit', 'credit>debit', 'debit>credit', 'grant>revoke', 'subscribe>unsubscribe', 'register>unregister', 'register>deregister', 'enroll>unenroll',
                'publish>unpublish', 'post>delete', 'insert>delete', 'insert>remove', 'append>remove', 'upload>delete', 'attach>detach', 'start>stop', 'open>close', 'lock>unlock', 'enable>disable', 'send>recall', 'send>unsend',
                'invite>uninvite', 'assign>unassign', 'push>pop', 'increment>decrement', 'decrement>increment', 'deploy>rollback', 'launch>terminate', 'launch>stop', 'spawn>kill', 'transfer>reverse', 'hire>dismiss', 'rent>return', 'checkout>return'
            ],
            t.verb || '>' || h.verb) AS verb_inverse
    FROM named AS t
    CROSS JOIN named AS h
    WHERE t.tool_name IN (SELECT tool_name FROM members)
),
helpers AS MATERIALIZED (
    SELECT
        r.scope_key, s.trajectory_id, s.tool_name, s.mutability, s.arguments, s.observation, s.end_time, s.turn_span_id,
        {'run_start': r.run_start, 'trajectory_id': s.trajectory_id, 'step_index': s.step_index, 'span_id': s.span_id} AS place,
        coalesce((
            SELECT list_sort(list(DISTINCT lower(CASE leaf.type WHEN 'VARCHAR' THEN nfc_normalize(trim(leaf.atom ->> '$')) ELSE regexp_replace(leaf.atom::VARCHAR, '\.0+$', '') END)))
            FROM json_tree(s.arguments) AS leaf
            WHERE leaf.atom IS NOT NULL AND leaf.type <> 'BOOLEAN'
        ), []) AS helper_values
    FROM steps AS s
    JOIN companions AS r USING (trajectory_id)
    SEMI JOIN (SELECT helper FROM kinships WHERE named_check OR named_inverse OR shares_noun OR verb_inverse) AS k ON k.helper = s.tool_name
    WHERE s.kind = 'tool' AND s.status = 'ok' AND s.tool_ran IS DISTINCT FROM FALSE
),
-- The model call that asked for a call: by its link, else the last one before it.
turn_keys AS (
    SELECT
        m.call,
        arg_max({'trace_id': t.trace_id, 'span_id': t.span_id}, (t.span_id IS NOT DISTINCT FROM m.turn_span_id, t.step_index, t.span_id)) AS turn
    FROM members AS m
    JOIN steps AS t ON t.trajectory_id = m.trajectory_id AND t.kind = 'model'
        AND (t.span_id = m.turn_span_id OR (m.turn_span_id IS NULL AND t.step_index < m.step_index))
    GROUP BY m.call
),
turns AS (
    SELECT
        k.call, t.agent_name, t.start_time AS requested_at, k.turn.span_id AS turn_span_id,
        -- Messages of the user, not tool results that some frameworks send in that role.
        len(list_filter(
            from_json(t.input_messages, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]'),
            lambda m: m.role = 'user'
                AND len(list_filter(m.parts, lambda p: p.type = 'tool_call_response')) = 0
                AND len(list_filter(m.parts, lambda p: p.type = 'text' AND NOT regexp_matches(p.content, '^\s*(?:Observation|Tool (?:result|output)|Result of|<tool_re|<function_re|\[tool)', 'i'))) > 0)) AS user_messages
    FROM turn_keys AS k
    JOIN members AS m ON m.call = k.call
    JOIN steps AS t ON t.trajectory_id = m.trajectory_id AND t.trace_id = k.turn.trace_id AND t.span_id = k.turn.span_id AND t.kind = 'model'
),
-- One row per pair with what the verdict needs of both ends.
ends AS MATERIALIZED (
    SELECT
        p.way, p.group_id, p.a, p.b, p.differ, p.adjacent, a.scope_key, a.tool_name, a.mutability,
        a.place AS a_place, a.end_time AS a_end, a.effect AS a_effect, a.likely AS a_likely, a.key AS a_key, a.trajectory_id AS a_run,
        a.argument_values, a.identifying_values, coalesce(ia.ids, []) AS a_ids, ta.user_messages AS a_user_messages, ta.agent_name AS a_agent,
        b.place AS b_place, b.start_time AS b_start, b.effect AS b_effect, b.likely AS b_likely, b.key AS b_key, b.trajectory_id AS b_run,
        coalesce(ib.ids, []) AS b_ids, tb.user_messages AS b_user_messages, tb.agent_name AS b_agent, tb.requested_at, tb.turn_span_id AS b_turn
    FROM paired AS p
    JOIN members AS a ON a.call = p.a
    JOIN members AS b ON b.call = p.b
    LEFT JOIN ids AS ia ON ia.call = p.a
    LEFT JOIN ids AS ib ON ib.call = p.b
    LEFT JOIN turns AS ta ON ta.call = p.a
    LEFT JOIN turns AS tb ON tb.call = p.b
),
-- After A ended and before B was asked for: what ran beside either of them could not be acted upon.
between_ends AS MATERIALIZED (
    SELECT e.*, h.tool_name AS helper, h.mutability AS helper_mutability, h.arguments IS NOT NULL AS helper_captured, h.observation AS helper_observation, h.helper_values
    FROM ends AS e
    JOIN helpers AS h ON h.scope_key = e.scope_key
    WHERE h.place > e.a_place AND h.place < e.b_place
      AND coalesce(h.end_time >= e.a_end, TRUE)
      AND coalesce(h.end_time <= least(e.requested_at, e.b_start), h.end_time <= e.b_start, TRUE)
      AND NOT (h.trajectory_id = e.b_run AND coalesce(h.turn_span_id = e.b_turn, FALSE))
),
in_between AS (
    SELECT
        e.way, e.group_id, e.a, e.b,
        bool_or(e.helper_mutability = 'read_only' AND (k.named_check OR (k.shares_noun AND (
            list_has_any(e.helper_values, e.argument_values)
            OR (e.helper_captured AND len(e.helper_values) = 0)
            OR list_has_any(e.helper_values, e.a_ids)
            OR list_bool_or(list_append(list_transform(e.a_ids, lambda id: contains(lower(e.helper_observation::VARCHAR), id)), FALSE)))))) AS checked,
        bool_or(e.helper_mutability IS DISTINCT FROM 'read_only' AND (k.named_inverse OR k.verb_inverse) AND (
            list_has_any(e.helper_values, e.a_ids)
            OR ((k.named_inverse OR k.shares_noun) AND len(e.helper_values) > 0 AND (
                list_has_all(e.argument_values, e.helper_values)
                -- Where the configuration says what makes the call, naming all of that is enough.
                OR (($identity::MAP(VARCHAR, VARCHAR[]))[e.tool_name] IS NOT NULL AND len(e.identifying_values) > 0 AND list_has_all(e.helper_values, e.identifying_values)))))) AS undone,
        min(e.helper) FILTER (WHERE e.helper_mutability = 'read_only' AND (k.named_check OR k.shares_noun)) AS checker
    FROM between_ends AS e
    JOIN kinships AS k ON k.tool_name = e.tool_name AND k.helper = e.helper
    GROUP BY e.way, e.group_id, e.a, e.b
),
judged AS (
    SELECT
        e.way, e.group_id, e.a, e.b, e.adjacent, n.checker,
        CASE
            WHEN e.way = 'key' THEN CASE WHEN e.differ THEN 'key_reuse' END
            WHEN e.way = 'words' AND NOT e.differ THEN NULL
            WHEN e.way IN ('same', 'session') AND e.a_key = e.b_key THEN 'replayed'
            -- An id of its own on either side means two things; one that both gave back means one.
            WHEN e.way IN ('same', 'session') AND list_has_any(e.a_ids, e.b_ids) AND (list_has_all(e.a_ids, e.b_ids) OR list_has_all(e.b_ids, e.a_ids)) THEN 'replayed'
            WHEN n.undone THEN NULL
            WHEN e.way = 'words' THEN 'same_in_words'
            WHEN e.a_effect = 'yes' AND e.b_effect = 'yes' THEN 'confirmed'
            WHEN n.checked THEN 'checked_retry'
            ELSE 'unverified_retry'
        END AS verdict,
        e.a_likely OR e.b_likely AS likely,
        e.a_run <> e.b_run AS across_runs,
        coalesce(e.a_run = e.b_run AND e.b_user_messages > e.a_user_messages AND e.a_agent IS NOT DISTINCT FROM e.b_agent, FALSE) AS user_message,
        e.mutability IS NULL AS mutability_unknown, coalesce(e.mutability = 'idempotent', FALSE) AS idempotent
    FROM ends AS e
    LEFT JOIN in_between AS n ON n.way = e.way AND n.group_id = e.group_id AND n.a = e.a AND n.b = e.b
),
levels AS (
    SELECT
        *,
        CASE
            WHEN idempotent OR verdict IN ('replayed', 'checked_retry', 'same_in_words') THEN 1
            ELSE greatest(1, CASE WHEN verdict = 'unverified_retry' AND NOT likely THEN 2 ELSE 3 END - (across_runs OR user_message)::INTEGER - mutability_unknown::INTEGER)
        END AS level,
        list_position(['replayed', 'same_in_words', 'checked_retry', 'unverified_retry', 'key_reuse', 'confirmed'], verdict) AS rank
    FROM judged
),
-- Where nothing links two neighbours, one chain of repeats ends and another begins.
chained AS (
    SELECT
        m.way, m.group_id, m.call, m.place,
        count(*) FILTER (WHERE l.b IS NOT NULL AND l.verdict IS NULL) OVER (PARTITION BY m.group_id ORDER BY m.place) AS chain
    FROM memberships AS m
    LEFT JOIN levels AS l ON l.group_id = m.group_id AND l.b = m.call AND l.adjacent
),
chains AS (
    SELECT c.group_id, c.chain, list_transform(list_sort(list({'place': c.place, 'call': c.call})), lambda e: e.call) AS members
    FROM chained AS c
    GROUP BY c.group_id, c.chain HAVING count(*) > 1
),
worst AS (
    SELECT
        ca.group_id, ca.chain,
        arg_max({'verdict': l.verdict, 'level': l.level, 'checker': l.checker, 'across_runs': l.across_runs, 'user_message': l.user_message,
            'mutability_unknown': l.mutability_unknown, 'idempotent': l.idempotent}, (l.level, l.rank, l.b)) AS w
    FROM levels AS l
    JOIN chained AS ca ON ca.group_id = l.group_id AND ca.call = l.a
    JOIN chained AS cb ON cb.group_id = l.group_id AND cb.call = l.b AND cb.chain = ca.chain
    WHERE l.verdict IS NOT NULL
    GROUP BY ca.group_id, ca.chain
),
told AS (
    SELECT
        c.group_id, c.chain, len(c.members) AS n, count(DISTINCT e.trajectory_id) AS n_runs,
        list_sort(list({'place': e.place, 'span_id': e.span_id, 'trajectory_id': e.trajectory_id, 'trace_id': e.trace_id, 'tool_name': e.tool_name, 'words': e.call_words, 'key': e.key,
            'at': 'step ' || coalesce(e.step_index::VARCHAR, '?'), 'ending': e.ending})) AS parts
    FROM (SELECT group_id, chain, members, unnest(members) AS call FROM chains) AS c
    JOIN members AS e ON e.call = c.call
    GROUP BY c.group_id, c.chain, c.members
),
repeats AS (
    SELECT
        t.parts[-1].trajectory_id AS trajectory_id, t.parts[-1].trace_id AS trace_id, t.parts[-1].span_id AS span_id,
        w.w.verdict AS kind, ['note', 'warning', 'error'][w.w.level] AS severity,
        CASE WHEN w.w.verdict = 'key_reuse' THEN t.parts[-1].tool_name || ' ran with other arguments under one idempotency key (' || left(t.parts[1].key, 60) || ')'
            WHEN w.w.verdict = 'same_in_words' THEN t.parts[1].words || ' ran ' || t.n || ' times with arguments that differ in type only'
            ELSE t.parts[1].words || CASE t.n WHEN 2 THEN ' ran twice' WHEN 3 THEN ' ran three times' ELSE ' ran ' || t.n || ' times' END END
        || ': ' || array_to_string(list_transform(t.parts[:5], lambda p: p.at || CASE WHEN t.n_runs > 1 THEN ' of run ' || left(p.trajectory_id, 8) ELSE '' END || ' ' || p.ending), ', ')
        || CASE WHEN t.n > 5 THEN ' and ' || (t.n - 5) || ' more' ELSE '' END
        || CASE w.w.verdict
            WHEN 'unverified_retry' THEN ', and nothing in between checked whether the first took effect'
            WHEN 'checked_retry' THEN ', with ' || coalesce(w.w.checker, 'a check') || ' in between'
            WHEN 'replayed' THEN ', with one and the same result or idempotency key: the repeat changed nothing'
            ELSE '' END
        || CASE WHEN w.w.level < 3 AND w.w.user_message AND NOT w.w.across_runs THEN '; a message of the user stands in between' ELSE '' END
        || CASE WHEN w.w.mutability_unknown THEN '; whether the tool changes anything is not known' ELSE '' END AS message,
        list_transform(t.parts[:-2], lambda p: p.span_id) AS related_span_ids,
        t.parts[-1].tool_name AS tool_name, t.n AS executions, CASE WHEN t.n_runs > 1 THEN 'session' ELSE 'run' END AS scope,
        list_filter([CASE WHEN w.w.across_runs THEN 'across_runs' END, CASE WHEN w.w.user_message AND NOT w.w.across_runs THEN 'user_message' END,
            CASE WHEN w.w.mutability_unknown THEN 'mutability_unknown' END, CASE WHEN w.w.idempotent THEN 'idempotent' END], lambda x: x IS NOT NULL) AS lowered
    FROM told AS t
    JOIN worst AS w ON w.group_id = t.group_id AND w.chain = t.chain
),
-- Calls whose arguments are unknown, or hidden without a hash, beside others that they may equal.
unseen AS (
    SELECT DISTINCT
        e.trajectory_id, e.tool_name,
        CASE WHEN e.arguments IS NULL THEN 'arguments of ' || e.tool_name || ' were not captured: whether its calls repeat each other cannot be told'
            ELSE 'arguments of ' || e.tool_name || ' were redacted without a hash: whether its calls repeat each other cannot be told' END AS reason
    FROM executions AS e
    JOIN executions AS o ON o.scope_key = e.scope_key AND o.tool_name = e.tool_name AND o.call <> e.call
    WHERE e.blind AND e.mutability IS DISTINCT FROM 'idempotent'
      AND (e.arguments IS NULL OR o.arguments IS NULL
        OR CASE WHEN o.has_hidden THEN o.seen_form = e.seen_form ELSE list_has_all(o.strict_form, e.seen_form) AND len(o.strict_form) = len(e.strict_form) END)
),
-- Runs without any tool step: what their models asked for is all that is known, if it is.
toolless AS MATERIALIZED (
    SELECT trajectory_id FROM trajectories
    ANTI JOIN (SELECT trajectory_id FROM steps WHERE kind = 'tool') USING (trajectory_id)
),
requested AS (
    SELECT trajectory_id, unnest(from_json(requested_tool_calls, '[{"name":"VARCHAR","arguments":"JSON"}]')) AS call
    FROM (
        SELECT trajectory_id, requested_tool_calls FROM steps
        SEMI JOIN toolless USING (trajectory_id)
        WHERE kind = 'model' AND requested_tool_calls IS NOT NULL AND requested_tool_calls::VARCHAR <> '[]'
    )
)
SELECT
    trajectory_id, trace_id, span_id, kind, severity, message, related_span_ids, tool_name, executions, scope, lowered, NULL::JSON AS evidence
FROM repeats
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], tool_name, NULL, NULL, NULL, json_object('kind', 'confirmed')
FROM unseen
UNION ALL
SELECT DISTINCT trajectory_id, NULL, NULL, 'not_evaluable', 'note', call.name || ' was requested more than once with the same arguments, and no tool call was recorded', [], call.name, NULL, NULL, NULL, json_object('kind', 'confirmed')
FROM requested
WHERE call.name IS NOT NULL
GROUP BY trajectory_id, call
HAVING count(*) > 1
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', 'neither a tool call nor the output of a model was recorded', [], NULL, NULL, NULL, NULL, json_object('kind', 'confirmed')
FROM toolless
-- A reason such as "stop" says that no tool was asked for, even where the output was not captured.
ANTI JOIN (
    SELECT trajectory_id FROM steps
    SEMI JOIN toolless USING (trajectory_id)
    WHERE kind = 'model' AND (output_messages IS NOT NULL OR requested_tool_calls IS NOT NULL OR NOT regexp_matches(finish_reason, 'tool|function', 'i'))
) USING (trajectory_id)
UNION ALL
SELECT DISTINCT trajectory_id, NULL, NULL, 'not_evaluable', 'note', 'no session id: repeats in other runs cannot be seen', [], NULL, NULL, NULL, NULL, json_object('kind', 'across_runs')
FROM mutations
WHERE session_id IS NULL AND mutability = 'mutating'
ORDER BY trajectory_id, kind, span_id, message
