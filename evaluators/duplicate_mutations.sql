/* +++
name       = "duplicate_mutations"
returns    = "findings"
scope      = "session"
severity   = "error"
question   = "Did the agent make the same change to the world twice?"
reads      = ["steps", "trajectories"]
limits     = "Arguments that differ in a timestamp or a nonce count as different calls unless ignore_arguments names them. A read-only call without arguments counts as a check of what its name speaks of. Ids in observations are recognised by their key or their shape, in one of more than a million bytes by their shape in its first 100,000 characters. A decimal number with more than 17 digits is compared as a double. Of three executions whose middle one was undone, the first and the last are not compared. What lies between repeats is looked at from the nearest on, up to 2,000,000 steps in a session; of the others a note says that it cannot be told whether they were checked or undone. Redacted calls whose visible values each stand in more than a hundred others may equal one of them, and a note says so."
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
        r.scope_key, r.session_id, s.tool_name, s.trajectory_id, s.mutability,
        CASE
            WHEN s.arguments_hash IS NULL AND s.arguments IS NULL THEN TRUE
            -- Each mark of a redaction has one of these, written out or escaped; a search that ignores case costs more than all four.
            WHEN contains(s.arguments::VARCHAR, '[') OR contains(s.arguments::VARCHAR, '<') OR contains(s.arguments::VARCHAR, '__') OR contains(s.arguments::VARCHAR, '\u')
                THEN s.arguments_hash IS NULL AND contains(lower(s.arguments::VARCHAR), 'redacted')
            ELSE FALSE
        END AS blind,
        CASE
            WHEN s.arguments_hash IS NOT NULL THEN hash(s.arguments_hash)
            WHEN s.idempotency_key IS NOT NULL OR len($ignore_arguments::VARCHAR[]) + len($idempotency_keys::VARCHAR[]) > 0
                OR ($identity::MAP(VARCHAR, VARCHAR[]))[s.tool_name] IS NOT NULL OR contains(s.arguments::VARCHAR, 'dempotency') THEN 0
            ELSE list_sum(list_transform(
                -- Few have a blank at an end.
                list_transform(json_extract_string(s.arguments, '$.*'),
                    lambda v: CASE WHEN v < '!' OR v[-1] < '!' OR contains(v, chr(160)) THEN regexp_replace(v, '^[\s\x{A0}]+|[\s\x{A0}]+$', '', 'g') ELSE v END),
                -- Numbers begin with a digit or a sign.
                lambda v: CASE WHEN v < ':' AND TRY_CAST(v AS DOUBLE) IS NOT NULL THEN hash(TRY_CAST(v AS DOUBLE)) WHEN v[1] IN ('{', '[') THEN 1 ELSE hash(nfc_normalize(v)) END))
        END AS coarse
    FROM steps AS s
    JOIN runs AS r USING (trajectory_id)
    WHERE s.kind = 'tool' AND s.tool_ran IS DISTINCT FROM FALSE AND s.effect <> 'no' AND s.mutability IS DISTINCT FROM 'read_only'
),
-- Tools whose calls in one run or session may repeat each other: everything after this works on these few.
suspects AS MATERIALIZED (
    SELECT scope_key, tool_name
    FROM (SELECT scope_key, tool_name, coarse, count(*) AS n, bool_or(blind) AS blind FROM mutations GROUP BY scope_key, tool_name, coarse)
    GROUP BY scope_key, tool_name
    HAVING max(n) > 1 OR bool_or(blind)
),
-- The runs in which they stand, or what may lie in between: the only other look at all steps.
suspect_steps AS MATERIALIZED (
    SELECT
        r.scope_key, r.run_start, s.trajectory_id, s.trace_id, s.span_id, s.step_index, s.tool_name, s.mutability, s.turn_span_id, s.start_time, s.end_time,
        s.arguments, s.arguments_hash, s.observation, s.idempotency_key, s.effect, s.effect_reason, s.status, s.error_type,
        s.kind = 'tool' AND s.tool_ran IS DISTINCT FROM FALSE AND s.effect <> 'no' AND s.mutability IS DISTINCT FROM 'read_only' AS changes,
        row_number() OVER (ORDER BY r.scope_key, r.run_start, s.trajectory_id, s.step_index, s.span_id) AS position
    FROM steps AS s
    JOIN (SELECT * FROM runs SEMI JOIN (SELECT DISTINCT scope_key FROM suspects) USING (scope_key)) AS r USING (trajectory_id)
    WHERE s.tool_name IS NOT NULL
),
calls AS MATERIALIZED (
    SELECT
        row_number() OVER (ORDER BY s.scope_key, s.tool_name, s.run_start, trajectory_id, step_index, trace_id, span_id) AS call,
        s.scope_key, s.tool_name, trajectory_id, trace_id, span_id, s.step_index, s.mutability, s.turn_span_id,
        s.start_time, s.end_time, s.arguments, s.arguments_hash, s.observation, s.idempotency_key, s.effect, s.position,
        CASE s.status
            WHEN 'ok' THEN 'succeeded' WHEN 'timeout' THEN 'timed out' WHEN 'unfinished' THEN 'never ended' WHEN 'cancelled' THEN 'was cancelled'
            ELSE 'failed' || coalesce(' with ' || left(s.error_type, 60), '')
        END AS ending,
        -- What leaves good reason to think that it took effect; other exceptions mostly come before the effect.
        coalesce(s.effect_reason IN ('timeout', 'unfinished', 'cancelled', 'connection_lost', 'server_error'), FALSE) AS likely
    FROM suspect_steps AS s
    SEMI JOIN suspects USING (scope_key, tool_name)
    WHERE s.changes
),
-- Arguments as paths and values in one spelling: NFC, no outer white space, 1.0 as 1 (by its digits, never as a double).
-- Here and below json_tree is given its document by a number: DuckDB repeats all that the function depends upon in each of
-- its rows, and a document of thousands of values would fill the memory.
leaves AS (
    SELECT
        c.call, c.tool_name, c.idempotency_key, nfc_normalize(leaf.fullkey) AS path,
        string_split_regex(leaf.fullkey, '[.\[\]"]+') AS keys,
        CASE WHEN leaf.type IN ('VARCHAR', 'BOOLEAN', 'NULL', 'OBJECT', 'ARRAY') THEN leaf.type ELSE 'NUMBER' END AS type,
        CASE
            WHEN leaf.type = 'VARCHAR' THEN nfc_normalize(trim(leaf.atom ->> '$', chr(32) || chr(9) || chr(10) || chr(13) || chr(160)))
            WHEN contains(leaf.value::VARCHAR, 'e') THEN coalesce(nullif(TRY_CAST(leaf.value::VARCHAR AS DECIMAL(38, 0)), 0)::VARCHAR, leaf.value::VARCHAR)
            ELSE regexp_replace(regexp_replace(leaf.value::VARCHAR, '(\.\d*?)0+$', '\1'), '\.$', '')
        END AS value
    FROM calls AS c, json_tree((SELECT d.arguments FROM calls AS d WHERE d.call = c.call)) AS leaf
    WHERE leaf.atom IS NOT NULL OR leaf.value::VARCHAR IN ('null', '{}', '[]')
),
-- What makes the call: not its idempotency key, and where the configuration names arguments, those alone.
marked_leaves AS (
    SELECT
        call, path, type, value, is_key, regexp_matches(value, '\[REDACTED|__REDACTED__|<REDACTED', 'i') AS hidden,
        NOT (is_key OR list_has_any(keys, $ignore_arguments::VARCHAR[])
            OR coalesce(NOT list_contains(($identity::MAP(VARCHAR, VARCHAR[]))[tool_name], keys[2]), FALSE)) AS counts
    FROM (
        SELECT
            *,
            list_has_any(keys, list_concat($idempotency_keys::VARCHAR[], ['idempotency_key', 'idempotencyKey', 'Idempotency-Key']))
                OR coalesce(value = idempotency_key, FALSE) AS is_key
        FROM leaves
    )
),
forms AS (
    SELECT
        c.call,
        coalesce(list_sort(list(m.path || chr(31) || m.type || chr(31) || m.value) FILTER (WHERE m.counts)), []) AS strict_form,
        coalesce(list_sort(list(m.path || chr(31) || m.value) FILTER (WHERE m.counts)), []) AS word_form,
        coalesce(list_sort(list(m.path || chr(31) || m.type || chr(31) || m.value) FILTER (WHERE m.counts AND NOT m.hidden)), []) AS seen_form,
        coalesce(list(DISTINCT lower(m.value)), []) AS argument_values,
        coalesce(list(DISTINCT lower(m.value)) FILTER (WHERE m.counts), []) AS identifying_values,
        coalesce(bool_or(m.hidden) FILTER (WHERE m.counts), FALSE) AS has_hidden,
        min(m.value) FILTER (WHERE m.is_key AND m.type IN ('VARCHAR', 'NUMBER')) AS key_argument,
        left(coalesce(array_to_string(list_transform(
            list_sort(list({'p': m.path, 'v': m.value}) FILTER (WHERE m.counts)),
            lambda e: concat_ws('=', nullif(regexp_replace(e.p, '^\$\.?', ''), ''), left(e.v, 40))), ', '), ''), 160) AS words
    FROM calls AS c
    LEFT JOIN marked_leaves AS m USING (call)
    GROUP BY c.call
),
executions AS MATERIALIZED (
    SELECT
        c.*, f.* EXCLUDE (call, strict_form, word_form),
        -- Redacted and cut arguments are known by the keyed hash of the originals, and by nothing else.
        c.arguments_hash IS NOT NULL AS hashed,
        CASE WHEN c.arguments_hash IS NOT NULL THEN [c.arguments_hash] ELSE f.strict_form END AS strict_form,
        CASE WHEN c.arguments_hash IS NOT NULL THEN [c.arguments_hash] ELSE f.word_form END AS word_form,
        c.arguments_hash IS NULL AND (c.arguments IS NULL OR f.has_hidden) AS blind,
        coalesce(c.idempotency_key, f.key_argument) AS key,
        c.tool_name || '(' || CASE WHEN c.arguments IS NULL THEN 'arguments not captured' ELSE f.words END || ')' AS call_words
    FROM calls AS c
    JOIN forms AS f USING (call)
),
known AS (
    SELECT * FROM executions WHERE NOT blind
),
-- Four ways to be a repeat: equal arguments within a run, equal arguments in several runs of a session, arguments equal
-- in words only, one idempotency key. A repeat within a run stays that run's, whatever the session's other runs did.
memberships AS (
    SELECT way, dense_rank() OVER (ORDER BY way, scope_key, tool_name, hashed, common) AS group_id, call, effect, form, trajectory_id
    FROM (
        SELECT 'same' AS way, list_prepend(trajectory_id, strict_form) AS common, strict_form AS form, * FROM known
        UNION ALL
        SELECT 'session', strict_form, strict_form, * FROM known
        UNION ALL
        SELECT 'words', word_form, strict_form, * FROM known
        UNION ALL
        SELECT 'key', [key], word_form, * FROM known WHERE key IS NOT NULL
    )
),
-- Neighbours in order of time, and neighbours among those that surely took effect: an unknown one in between hides nothing.
pairs AS (
    SELECT way, group_id, lag(call) OVER earlier AS a, call AS b, form <> lag(form) OVER earlier AS differ,
        trajectory_id <> lag(trajectory_id) OVER earlier AS across_runs, TRUE AS adjacent
    FROM memberships
    WINDOW earlier AS (PARTITION BY group_id ORDER BY call)
    UNION ALL
    SELECT way, group_id, lag(call) OVER earlier, call, form <> lag(form) OVER earlier,
        trajectory_id <> lag(trajectory_id) OVER earlier, FALSE
    FROM memberships
    WHERE effect = 'yes'
    WINDOW earlier AS (PARTITION BY group_id ORDER BY call)
),
-- The first call of a group has none before it, so that all three are NULL.
paired AS (
    SELECT way, group_id, a, b, bool_or(adjacent) AS adjacent
    FROM pairs
    WHERE CASE way WHEN 'same' THEN a > 0 WHEN 'session' THEN across_runs ELSE differ END
    GROUP BY way, group_id, a, b
),
members AS MATERIALIZED (
    SELECT * FROM known SEMI JOIN (SELECT unnest([a, b]) AS call FROM paired) USING (call)
),
observed AS MATERIALIZED (
    SELECT call, coalesce(TRY_CAST(shown ->> '$' AS JSON), shown) AS document, array_to_string(argument_values, chr(31)) AS said
    FROM (
        -- Of a long one the beginning, as a text: taken apart, it would fill the memory.
        SELECT *, CASE WHEN strlen(observation::VARCHAR) > 1000000 THEN to_json(left(observation::VARCHAR, 100000)) ELSE observation END AS shown FROM members
    )
),
-- Ids that a call gave back: what stands under a key that says so, and what looks like one inside of text.
returned AS (
    SELECT m.call, leaf.key, leaf.type, leaf.atom ->> '$' AS value
    FROM observed AS m, json_tree((SELECT d.document FROM observed AS d WHERE d.call = m.call)) AS leaf
),
candidate_ids AS (
    SELECT call, lower(value) AS id
    FROM returned
    WHERE regexp_matches(key, '(?i)(?:^|[_-])(?:id|ids|number|no|ref|reference|confirmation|po|uuid|guid|locator|pnr|key)$|(?-i)(?:[a-z](?:Id|Ids|ID|Number|Ref|Reference|Key))$|(?i)(?:confirmation|booking|order|tracking|reservation|ticket)[_-]?code$')
      -- These name the request, not what it made.
      AND NOT regexp_matches(key, '(?i)(?:request|trace|span|correlation|session|call)[_-]?(?:id|number|key)$')
      AND regexp_matches(value, '^\S{0,40}[A-Za-z0-9]\S{0,39}$') AND type <> 'BOOLEAN'
    UNION
    SELECT call, lower(unnest(list_concat(
        regexp_extract_all(value, '\b[A-Za-z]{1,12}[-_#]\d[A-Za-z0-9_-]*'),
        regexp_extract_all(value, '\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b'),
        list_filter(regexp_extract_all(value, '\b[A-Z0-9]{5,16}\b'), lambda word: regexp_matches(word, '[A-Z]') AND regexp_matches(word, '\d') AND NOT regexp_matches(word, '^\d+[A-Z]{1,3}$')))))
    FROM returned
),
ids AS (
    SELECT call, list(DISTINCT id) AS ids
    FROM candidate_ids
    JOIN observed USING (call)
    WHERE NOT contains(said, id)
    GROUP BY call
),
-- The model call that asked for a call.
turns AS (
    SELECT
        m.call, t.agent_name, t.start_time AS requested_at,
        -- Messages of the user, not tool results that some frameworks send in that role.
        len(list_filter(
            from_json(t.input_messages, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR","content":"VARCHAR"}]}]'),
            lambda m: m.role = 'user'
                AND len(list_filter(m.parts, lambda p: p.type = 'tool_call_response')) = 0
                AND len(list_filter(m.parts, lambda p: NOT regexp_matches(p.content, '^\s*(?:Observation|Error:\s+(?:Error executing tool|Code execution failed)|Tool (?:result|output)|Result of|<tool_re|<function_re|\[tool)', 'i'))) > 0)) AS user_messages
    FROM (SELECT call, trajectory_id, trace_id, turn_span_id AS span_id FROM members) AS m
    JOIN (SELECT trajectory_id, trace_id, span_id, agent_name, start_time, input_messages FROM steps WHERE kind = 'model') AS t USING (trajectory_id, trace_id, span_id)
),
-- The words of tools' names, without a server's prefix; the first is the verb, unless it is a plural (orders.place).
tool_names AS (
    SELECT tool_name, reads,
        list_filter(string_split_regex(lower(regexp_replace(regexp_replace(tool_name, '^.*__', ''), '([a-z0-9])([A-Z])', '\1_\2', 'g')), '[^a-z0-9]+'),
            lambda w: NOT list_contains(['', 'tool', 'api', 'v1', 'v2', 'the', 'a', 'to', 'for', 'by', 'of', 'in', 'on', 'with', 'new', 'all', 'my', 'and', 'or', 'id', 'async'], w)) AS words
    FROM (SELECT tool_name, bool_or(mutability = 'read_only') AS reads FROM suspect_steps GROUP BY tool_name)
),
named AS (
    SELECT
        tool_name, reads, words[1] AS verb,
        list_transform(coalesce(nullif(words[2:], []), words), lambda w: regexp_replace(regexp_replace(w, 'ies$', 'y'), '([^s])s$', '\1')) AS nouns
    FROM (SELECT tool_name, reads, CASE WHEN regexp_matches(words[1], '[^s]s$') THEN list_reverse(words) ELSE words END AS words FROM tool_names)
),
ends AS MATERIALIZED (
    SELECT m.*, coalesce(i.ids, []) AS ids, t.user_messages, t.requested_at, t.agent_name
    FROM members AS m
    LEFT JOIN ids AS i USING (call)
    LEFT JOIN turns AS t USING (call)
),
-- What lies between the repeats of a session may be too much to look at: it is, for the nearer ones.
intervals AS MATERIALIZED (
    SELECT
        p.a, p.b, a.tool_name, a.position AS begin, b.position AS finish, a.end_time AS ended_at, least(b.requested_at, b.start_time) AS asked_at,
        b.trajectory_id, b.turn_span_id, a.argument_values, a.identifying_values, a.ids,
        sum(b.position - a.position) OVER (PARTITION BY a.scope_key ORDER BY b.position - a.position, a.call, b.call) > 2000000 AS crowded
    FROM (SELECT DISTINCT a, b FROM paired) AS p
    JOIN ends AS a ON a.call = p.a
    JOIN ends AS b ON b.call = p.b
),
nearer AS (
    SELECT * FROM intervals WHERE NOT crowded
),
-- Which tools may check, and which may undo, which.
kinships AS MATERIALIZED (
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
    FROM (
        -- Of names that do not meet there may be thousands.
        SELECT DISTINCT p.tool_name, s.tool_name AS helper
        FROM (SELECT tool_name, unnest(range(begin + 1, finish)) AS position FROM nearer) AS p
        JOIN suspect_steps AS s USING (position)
    ) AS n
    JOIN named AS t ON t.tool_name = n.tool_name
    JOIN named AS h ON h.tool_name = n.helper
    WHERE ((named_check OR shares_noun) AND h.reads) OR named_inverse OR verb_inverse
),
helping AS MATERIALIZED (
    SELECT
        s.trajectory_id, s.tool_name, s.mutability, s.arguments, lower(s.observation::VARCHAR) AS observation, s.end_time, s.turn_span_id, s.position
    FROM suspect_steps AS s
    SEMI JOIN members AS m USING (scope_key)
    SEMI JOIN kinships AS k ON k.helper = s.tool_name
    WHERE s.status = 'ok'
),
helpers AS MATERIALIZED (
    SELECT h.*, coalesce(v.helper_values, []) AS helper_values
    FROM helping AS h
    LEFT JOIN (
        SELECT h.position, list(DISTINCT lower(nfc_normalize(trim(leaf.atom ->> '$')))) AS helper_values
        FROM helping AS h, json_tree((SELECT d.arguments FROM helping AS d WHERE d.position = h.position)) AS leaf
        WHERE leaf.atom IS NOT NULL AND leaf.type <> 'BOOLEAN'
        GROUP BY h.position
    ) AS v USING (position)
),
-- Calls after A ended and before B was asked for (what ran beside either of them could not be acted upon), and what they mean.
between_ends AS (
    SELECT
        p.a, p.b, h.tool_name AS helper,
        h.mutability = 'read_only' AND (k.named_check OR (k.shares_noun AND (
            list_has_any(h.helper_values, p.argument_values)
            OR (h.arguments IS NOT NULL AND len(h.helper_values) = 0)
            OR list_has_any(h.helper_values, p.ids)
            OR list_bool_or(list_transform(p.ids, lambda id: contains(h.observation, id)))))) AS checks,
        (k.named_inverse OR k.verb_inverse) AND (
            list_has_any(h.helper_values, p.ids)
            OR ((k.named_inverse OR k.shares_noun) AND len(h.helper_values) > 0 AND (
                list_has_all(p.argument_values, h.helper_values)
                -- Naming all that makes the call is enough, whatever else is said.
                OR list_has_all(h.helper_values, p.identifying_values)))) AS undoes
    FROM nearer AS p
    -- Positions run through all scopes: what lies between two calls of one scope is of that scope.
    JOIN helpers AS h ON h.position > p.begin AND h.position < p.finish
    JOIN kinships AS k ON k.tool_name = p.tool_name AND k.helper = h.tool_name
    WHERE coalesce(h.end_time >= p.ended_at, TRUE)
      AND coalesce(h.end_time <= p.asked_at, TRUE)
      AND NOT coalesce(h.trajectory_id = p.trajectory_id AND h.turn_span_id = p.turn_span_id, FALSE)
),
in_between AS (
    SELECT a, b, bool_or(undoes) AS undone, min(helper) FILTER (WHERE checks) AS checker
    FROM between_ends
    GROUP BY a, b
),
judged AS (
    SELECT
        p.group_id, p.a, p.b, p.adjacent, n.checker, b.trajectory_id, b.tool_name,
        CASE
            WHEN p.way = 'key' THEN 'key_reuse'
            WHEN a.key = b.key THEN 'replayed'
            -- An id of its own on either side means two things; one that both gave back means one.
            WHEN len(list_intersect(a.ids, b.ids)) = greatest(1, least(len(a.ids), len(b.ids))) THEN 'replayed'
            WHEN i.crowded THEN 'untold'
            WHEN n.undone THEN 'undone'
            WHEN p.way = 'words' THEN 'same_in_words'
            WHEN a.effect = 'yes' AND b.effect = 'yes' THEN 'confirmed'
            WHEN n.checker IS NOT NULL THEN 'checked_retry'
            ELSE 'unverified_retry'
        END AS verdict,
        a.likely OR b.likely AS likely,
        a.trajectory_id <> b.trajectory_id AS across_runs,
        coalesce(a.trajectory_id = b.trajectory_id AND b.user_messages > a.user_messages AND a.agent_name IS NOT DISTINCT FROM b.agent_name, FALSE) AS user_message,
        a.mutability IS NULL AS mutability_unknown, coalesce(a.mutability = 'idempotent', FALSE) AS idempotent
    FROM paired AS p
    JOIN ends AS a ON a.call = p.a
    JOIN ends AS b ON b.call = p.b
    JOIN intervals AS i ON i.a = p.a AND i.b = p.b
    LEFT JOIN in_between AS n ON n.a = p.a AND n.b = p.b
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
-- Where the one of two neighbours was undone before the other, one chain of repeats ends and another begins.
chained AS (
    SELECT m.group_id, m.call, count(*) FILTER (WHERE l.verdict = 'undone') OVER (PARTITION BY m.group_id ORDER BY m.call) AS chain
    FROM memberships AS m
    LEFT JOIN levels AS l ON l.group_id = m.group_id AND l.b = m.call AND l.adjacent
),
worst AS (
    SELECT
        a.group_id, a.chain,
        arg_max({'verdict': l.verdict, 'level': l.level, 'checker': l.checker, 'across_runs': l.across_runs, 'user_message': l.user_message,
            'mutability_unknown': l.mutability_unknown, 'idempotent': l.idempotent}, (l.level, l.rank, l.b)) AS w
    FROM levels AS l
    JOIN chained AS a ON a.group_id = l.group_id AND a.call = l.a
    JOIN chained AS b ON b.group_id = l.group_id AND b.call = l.b AND b.chain = a.chain
    WHERE l.verdict NOT IN ('undone', 'untold')
    GROUP BY a.group_id, a.chain
),
told AS (
    SELECT
        c.group_id, c.chain, count(*) AS n, count(DISTINCT e.trajectory_id) AS n_runs,
        list_sort(list({'call': call, 'span_id': e.span_id, 'trajectory_id': e.trajectory_id, 'trace_id': e.trace_id, 'tool_name': e.tool_name, 'words': e.call_words, 'key': e.key,
            'at': 'step ' || coalesce(e.step_index::VARCHAR, '?'), 'ending': e.ending})) AS parts
    FROM chained AS c
    JOIN known AS e USING (call)
    GROUP BY c.group_id, c.chain
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
            WHEN 'checked_retry' THEN ', with ' || w.w.checker || ' in between'
            WHEN 'replayed' THEN ', with one and the same result or idempotency key: the repeat changed nothing'
            ELSE '' END
        || CASE WHEN w.w.user_message THEN '; a message of the user stands in between' ELSE '' END
        || CASE WHEN w.w.mutability_unknown THEN '; whether the tool changes anything is not known' ELSE '' END AS message,
        list_transform(t.parts[:-2], lambda p: p.span_id) AS related_span_ids,
        t.parts[-1].tool_name AS tool_name, t.n AS executions, CASE WHEN t.n_runs > 1 THEN 'session' ELSE 'run' END AS scope,
        list_filter([CASE WHEN w.w.across_runs THEN 'across_runs' END, CASE WHEN w.w.user_message THEN 'user_message' END,
            CASE WHEN w.w.mutability_unknown THEN 'mutability_unknown' END, CASE WHEN w.w.idempotent THEN 'idempotent' END], lambda x: x IS NOT NULL) AS lowered
    FROM told AS t
    JOIN worst AS w USING (group_id, chain)
),
-- Calls whose arguments are unknown, or hidden without a hash, beside others that they may equal.
unknown AS (
    SELECT * FROM executions WHERE blind AND mutability IS DISTINCT FROM 'idempotent'
),
-- Values of calls, each with all calls of as many values that have it; every call has the value ''.
marks AS MATERIALIZED (
    SELECT scope_key, tool_name, len(strict_form) AS size, unnest(list_prepend('', strict_form)) AS mark, call
    FROM executions
    SEMI JOIN (SELECT scope_key, tool_name FROM unknown WHERE arguments IS NOT NULL) USING (scope_key, tool_name)
),
rarest AS (
    SELECT u.call, scope_key, tool_name, size, arg_min(mark, m.n) AS mark, min(m.n) AS n
    FROM (SELECT call, scope_key, tool_name, len(strict_form) AS size, unnest(list_prepend('', seen_form)) AS mark FROM unknown WHERE arguments IS NOT NULL) AS u
    JOIN (SELECT scope_key, tool_name, size, mark, count(*) AS n FROM marks GROUP BY ALL) AS m USING (scope_key, tool_name, size, mark)
    GROUP BY ALL
),
-- Redacted calls that may equal another, which has all that is seen of them. Where each value stands in more than a hundred
-- others, they are too many to compare, and one may.
alike AS (
    SELECT call FROM rarest WHERE n > 101
    UNION
    SELECT r.call
    FROM rarest AS r
    JOIN marks AS m USING (scope_key, tool_name, size, mark)
    JOIN executions AS e ON e.call = r.call
    JOIN executions AS o ON o.call = m.call
    WHERE r.n <= 101 AND o.call <> e.call AND list_has_all(o.strict_form, e.seen_form)
),
unseen AS (
    SELECT DISTINCT trajectory_id, tool_name, 'arguments of ' || tool_name || ' were not captured: whether its calls repeat each other cannot be told' AS reason
    FROM unknown
    SEMI JOIN (SELECT scope_key, tool_name FROM executions GROUP BY scope_key, tool_name HAVING count(*) > 1) USING (scope_key, tool_name)
    WHERE arguments IS NULL
    UNION ALL
    SELECT DISTINCT trajectory_id, tool_name, 'arguments of ' || tool_name || ' were redacted without a hash: whether its calls repeat each other cannot be told'
    FROM executions
    SEMI JOIN alike USING (call)
),
-- Runs without any tool step: what their models asked for is all that is known, if it is.
toolless AS MATERIALIZED (
    SELECT trajectory_id FROM (SELECT trajectory_id FROM trajectories WHERE coalesce(tool_call_count, 0) = 0)
    ANTI JOIN (SELECT trajectory_id FROM steps WHERE kind = 'tool') USING (trajectory_id)
),
requested AS (
    SELECT trajectory_id, unnest(from_json(requested_tool_calls, '[{"name":"VARCHAR","arguments":"JSON"}]')) AS call
    FROM steps
    SEMI JOIN toolless USING (trajectory_id)
)
SELECT
    trajectory_id, trace_id, span_id, kind, severity, message, related_span_ids, tool_name, executions, scope, lowered, NULL::JSON AS evidence
FROM repeats
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], tool_name, NULL, NULL, NULL, json_object('kind', 'confirmed')
FROM unseen
UNION ALL
SELECT DISTINCT trajectory_id, NULL, NULL, 'not_evaluable', 'note', 'too much lies between equal calls of ' || tool_name || ' to tell whether it undid or checked them', [], tool_name, NULL, NULL, NULL, json_object('kind', 'confirmed')
FROM judged
WHERE verdict = 'untold'
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
    WHERE output_messages IS NOT NULL OR requested_tool_calls IS NOT NULL OR NOT regexp_matches(finish_reason, 'tool|function', 'i')
) USING (trajectory_id)
UNION ALL
SELECT DISTINCT trajectory_id, NULL, NULL, 'not_evaluable', 'note', 'no session id: repeats in other runs cannot be seen', [], NULL, NULL, NULL, NULL, json_object('kind', 'across_runs')
FROM mutations
WHERE session_id IS NULL AND mutability = 'mutating'
ORDER BY trajectory_id, kind, span_id, message, evidence
