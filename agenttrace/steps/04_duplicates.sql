-- Never count twice: one model call and one tool execution are one step each, however many libraries recorded them.
-- `duplicates` names the span that goes, the span that stands for it, and what the latter takes over.
CREATE OR REPLACE TEMP TABLE execs AS
    SELECT p.trace_id, p.span_id, p.kind, p.parent_exec, p.own_agent, name_key(p.agent_name) AS agent_key, p.started, p.ended, p.scope_name,
        m.tool_name, m.tool_call_id, m.arguments, m.model, m.response_id, m.input_tokens, m.output_tokens,
        (m.input_messages IS NOT NULL)::INT + (m.output_messages IS NOT NULL)::INT AS messages
    FROM places AS p JOIN mapped AS m USING (trace_id, span_id)
    WHERE p.kind IN ('model', 'tool');

CREATE OR REPLACE TEMP TABLE duplicates (trace_id VARCHAR, span_id VARCHAR, duplicate_of VARCHAR);

-- if EXISTS (FROM execs AS i JOIN execs AS o ON o.trace_id = i.trace_id AND o.span_id = i.parent_exec AND o.kind = i.kind)
-- The same call inside the same call: model in model with neither agent nor tool between; tool in tool of one name with no other id and, where
-- an id is missing, no other arguments (a recursive call has others).
CREATE OR REPLACE TEMP TABLE wraps AS
    SELECT i.trace_id, i.kind, i.span_id AS inner_span, i.started, o.span_id AS outer_span,
        count(*) OVER (PARTITION BY o.trace_id, o.span_id) AS inner_calls
    FROM execs AS i
    JOIN execs AS o ON o.trace_id = i.trace_id AND o.span_id = i.parent_exec AND o.kind = i.kind
    WHERE i.kind = 'model'
        OR (name_key(i.tool_name) = name_key(o.tool_name)
            AND coalesce(i.tool_call_id = o.tool_call_id, same_arguments(i.arguments, o.arguments), TRUE));

-- Spans that each hold one another are recordings of one call. Where the innermost holds several, these are the calls (its retries), and
-- none of the recordings stays.
CREATE OR REPLACE TEMP TABLE recordings AS
WITH RECURSIVE down AS (
    SELECT w.trace_id, w.span_id, w.kind, w.span_id AS head, 0 AS level
    FROM (SELECT trace_id, outer_span AS span_id, kind FROM wraps UNION SELECT trace_id, inner_span, kind FROM wraps) AS w
    ANTI JOIN (FROM wraps WHERE inner_calls = 1) AS i ON i.trace_id = w.trace_id AND i.inner_span = w.span_id
    UNION ALL
    SELECT d.trace_id, w.inner_span, d.kind, d.head, d.level + 1
    FROM down AS d
    JOIN wraps AS w ON w.trace_id = d.trace_id AND w.outer_span = d.span_id AND w.inner_calls = 1
)
SELECT * FROM down;

INSERT INTO duplicates
WITH retries AS (
    SELECT trace_id, outer_span AS span_id, arg_max(inner_span, (started, inner_span)) AS last_call
    FROM wraps WHERE inner_calls > 1 GROUP BY trace_id, outer_span
),
kept AS (
    SELECT r.trace_id, r.head, max(t.last_call) AS last_call,
        -- Of a tool the outermost, for it holds the whole time; of a model call the one with messages, else the innermost.
        arg_min(r.span_id, CASE WHEN r.kind = 'tool' THEN (0, r.level) ELSE (-e.messages, -r.level) END) AS span_id
    FROM recordings AS r
    JOIN execs AS e USING (trace_id, span_id)
    LEFT JOIN retries AS t USING (trace_id, span_id)
    GROUP BY r.trace_id, r.head
)
SELECT r.trace_id, r.span_id, coalesce(k.last_call, k.span_id) AS duplicate_of
FROM recordings AS r JOIN kept AS k USING (trace_id, head)
WHERE k.last_call IS NOT NULL OR r.span_id <> k.span_id;
-- end if

-- if EXISTS (SELECT 1 FROM execs GROUP BY trace_id, kind HAVING min(coalesce(scope_name, '')) <> max(coalesce(scope_name, '')))
-- Two instrumentations side by side: the same response at the same time, else the same tokens of the same model within the other's time or for
-- most of it (callbacks begin one after the other, and end so); the same tool with one id or, where an id is missing, equal
-- arguments or none.
CREATE OR REPLACE TEMP MACRO most_of_the_time(started, ended, later_started, later_ended) AS
    2 * (least(ended, later_ended)::HUGEINT - later_started) >= greatest(ended, later_ended)::HUGEINT - started;

-- Each call under what it may share with another scope's, the surest first.
CREATE OR REPLACE TEMP TABLE sided AS
WITH calls AS (
    SELECT *, coalesce(scope_name, '') AS scope FROM execs AS e ANTI JOIN duplicates AS d USING (trace_id, span_id)
    QUALIFY min(scope) OVER (PARTITION BY trace_id, kind) <> max(scope) OVER (PARTITION BY trace_id, kind)
),
keyed AS (
    SELECT *, messages AS holds, response_id AS id, 'response ' || response_id AS key FROM calls WHERE kind = 'model' AND response_id IS NOT NULL
    UNION ALL
    SELECT *, messages, response_id, concat_ws(' ', 'usage', input_tokens, output_tokens, model)
    FROM calls WHERE kind = 'model' AND input_tokens IS NOT NULL AND output_tokens IS NOT NULL AND model IS NOT NULL
    UNION ALL
    SELECT *, (arguments IS NOT NULL)::INT, tool_call_id, concat_ws(' ', 'id', tool_call_id, name_key(tool_name))
    FROM calls WHERE kind = 'tool' AND tool_call_id IS NOT NULL AND tool_name IS NOT NULL
    UNION ALL
    SELECT *, 1, tool_call_id, concat_ws(' ', 'call', name_key(tool_name), canonical_arguments(arguments))
    FROM calls WHERE kind = 'tool' AND arguments IS NOT NULL AND tool_name IS NOT NULL
    UNION ALL
    SELECT *, (arguments IS NOT NULL)::INT, tool_call_id, concat_ws(' ', 'name', name_key(tool_name)) FROM calls WHERE kind = 'tool' AND tool_name IS NOT NULL
),
-- Of hundreds of scopes each pair would be compared; nobody has as many libraries.
scopes AS (
    SELECT DISTINCT trace_id, key, scope FROM keyed QUALIFY dense_rank() OVER (PARTITION BY trace_id, key ORDER BY scope) <= 16
),
facing AS (
    SELECT k.trace_id, k.key, k.scope, s.scope AS other_scope, least(k.scope, s.scope) AS first_scope, k.span_id, k.own_agent, k.agent_key,
        CASE WHEN k.key LIKE 'id %' OR k.key LIKE 'name %' THEN k.arguments END AS arguments, k.holds, k.id, k.started, k.ended
    FROM keyed AS k
    JOIN scopes AS s ON s.trace_id = k.trace_id AND s.key = k.key AND s.scope <> k.scope
    SEMI JOIN scopes AS o ON o.trace_id = k.trace_id AND o.key = k.key AND o.scope = k.scope
),
gaps AS (
    SELECT *, coalesce(started > max(coalesce(ended, started)) OVER (PARTITION BY trace_id, key, first_scope, greatest(scope, other_scope)
        ORDER BY started, span_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), FALSE) AS after_a_gap
    FROM facing
),
groups AS (
    SELECT *, sum(after_a_gap::INT) OVER (PARTITION BY trace_id, key, first_scope, greatest(scope, other_scope) ORDER BY started, span_id) AS overlap FROM gaps
)
SELECT *, row_number() OVER (PARTITION BY trace_id, key, scope, other_scope, overlap ORDER BY started, span_id) AS nth FROM groups;

CREATE OR REPLACE TEMP MACRO is_same_call(key, a, b) AS
    CASE WHEN key LIKE 'response %' THEN coalesce(a.ended >= b.started, TRUE)
        -- Test models give each agent the same ids.
        WHEN key LIKE 'id %' THEN coalesce(a.ended >= b.started, TRUE) AND (a.own_agent IS NOT DISTINCT FROM b.own_agent
            OR coalesce(same_arguments(a.arguments, b.arguments) OR same_arguments(b.arguments, a.arguments), TRUE))
        ELSE (a.id IS NULL OR b.id IS NULL)
            AND (a.ended >= b.ended OR (a.started = b.started AND a.ended <= b.ended) OR most_of_the_time(a.started, a.ended, b.started, b.ended))
            AND (key NOT LIKE 'name %' OR a.holds = 0 OR b.holds = 0 OR same_arguments(b.arguments, a.arguments)) END;

-- Of calls that overlap, the n-th of one scope is the other's n-th: no library records one call twice. What then has no partner is compared
-- with the last call that the other scope began before it.
CREATE OR REPLACE TEMP TABLE pairs AS
WITH in_order AS (
    SELECT trace_id, key, CASE WHEN (x.started, x.span_id) <= (y.started, y.span_id) THEN x ELSE y END AS a, CASE WHEN (x.started, x.span_id) <= (y.started, y.span_id) THEN y ELSE x END AS b
    FROM (SELECT trace_id, key, first_scope, other_scope, overlap, nth, sided AS x FROM sided WHERE scope = first_scope) AS p
    JOIN (SELECT trace_id, key, first_scope, scope AS other_scope, overlap, nth, sided AS y FROM sided WHERE scope <> first_scope) AS q
        USING (trace_id, key, first_scope, other_scope, overlap, nth)
),
matched AS (
    SELECT * FROM in_order WHERE is_same_call(key, a, b)
),
free AS (
    SELECT s.* FROM sided AS s
    ANTI JOIN (SELECT trace_id, key, a.span_id AS span_id, b.scope AS other_scope FROM matched UNION ALL SELECT trace_id, key, b.span_id, a.scope FROM matched) AS m
        USING (trace_id, key, span_id, other_scope)
),
starts AS (
    SELECT trace_id, key, scope, other_scope, started, min_by(free, span_id) AS a FROM free GROUP BY ALL
),
found AS (
    FROM matched
    UNION ALL
    SELECT b.trace_id, b.key, s.a, b
    FROM free AS b
    ASOF JOIN starts AS s ON s.trace_id = b.trace_id AND s.key = b.key AND s.scope = b.other_scope AND s.other_scope = b.scope AND b.started >= s.started
    WHERE is_same_call(b.key, s.a, b)
)
SELECT *, list_position(['response', 'usage', 'id', 'call', 'name'], split_part(key, ' ', 1)) AS rank FROM found
QUALIFY row_number() OVER (PARTITION BY trace_id, a.span_id, b.scope ORDER BY rank, b.started, b.span_id) = 1
    AND row_number() OVER (PARTITION BY trace_id, b.span_id, a.scope ORDER BY rank, a.started DESC, a.span_id) = 1;

-- What stands above each of them, up to a bound: the tree may be hostile.
CREATE OR REPLACE TEMP TABLE steps_above AS
WITH RECURSIVE up AS (
    SELECT p.trace_id, p.span_id, p.step_above AS above, 1 AS hops
    FROM places AS p SEMI JOIN (SELECT trace_id, a.span_id AS span_id FROM pairs UNION SELECT trace_id, b.span_id FROM pairs) AS s USING (trace_id, span_id)
    WHERE p.step_above IS NOT NULL
    UNION ALL
    SELECT u.trace_id, u.span_id, p.step_above, u.hops + 1
    FROM up AS u JOIN places AS p ON p.trace_id = u.trace_id AND p.span_id = u.above
    WHERE p.step_above IS NOT NULL AND u.hops < 32
)
SELECT u.trace_id, u.span_id, u.above, u.hops, p.kind FROM up AS u JOIN places AS p ON p.trace_id = u.trace_id AND p.span_id = u.above;

INSERT INTO duplicates
WITH same AS (
    SELECT p.*, (-a.holds, a.started, a.span_id) < (-b.holds, b.started, b.span_id) AS earlier_stays
    FROM pairs AS p
    -- A call within a call of a tool has been compared above; here it is one that the tool, or an agent in it, made.
    ANTI JOIN steps_above AS t ON t.trace_id = p.trace_id AND t.span_id = p.b.span_id AND t.above = p.a.span_id AND t.kind = 'tool'
    ANTI JOIN (
        SELECT m.trace_id, m.span_id, m.above FROM steps_above AS m
        JOIN steps_above AS t ON t.trace_id = m.trace_id AND t.span_id = m.span_id AND t.hops < m.hops AND t.kind = 'tool'
        WHERE m.kind = 'model'
    ) AS n ON n.trace_id = p.trace_id AND n.span_id = p.b.span_id AND n.above = p.a.span_id
    LEFT JOIN steps_above AS g ON g.trace_id = p.trace_id AND g.span_id = p.a.span_id AND g.above = p.b.own_agent
    LEFT JOIN steps_above AS h ON h.trace_id = p.trace_id AND h.span_id = p.b.span_id AND h.above = p.a.own_agent
    -- Agents of two names, neither of which runs the other, work side by side; without an id, equal calls of theirs are two.
    WHERE p.key LIKE 'response %' OR p.key LIKE 'id %' OR g.span_id IS NOT NULL OR h.span_id IS NOT NULL OR coalesce(a.agent_key = b.agent_key, TRUE)
)
SELECT trace_id, CASE WHEN earlier_stays THEN b.span_id ELSE a.span_id END AS span_id,
    min(CASE WHEN earlier_stays THEN a.span_id ELSE b.span_id END) AS duplicate_of
FROM same GROUP BY ALL;
-- end if

-- if EXISTS (FROM duplicates)
-- A chain of wrappers ends at the one that stays.
CREATE OR REPLACE TEMP TABLE duplicates AS
WITH RECURSIVE chain AS (
    SELECT trace_id, span_id, duplicate_of, 1 AS hops FROM duplicates
    UNION ALL
    SELECT c.trace_id, c.span_id, d.duplicate_of, c.hops + 1
    FROM chain AS c JOIN duplicates AS d ON d.trace_id = c.trace_id AND d.span_id = c.duplicate_of
    WHERE c.hops < 32
)
SELECT trace_id, span_id, arg_max(duplicate_of, hops) AS duplicate_of FROM chain GROUP BY trace_id, span_id;

-- What the one that stays lacks, it takes from the ones that go.
CREATE OR REPLACE TEMP TABLE merged AS
WITH taken AS (
    SELECT d.trace_id, d.duplicate_of AS span_id,
        arg_min(m.tool_call_id, m.span_id) AS tool_call_id, arg_min(m.arguments, m.span_id) AS arguments, arg_min(m.arguments_hash, m.span_id) AS arguments_hash,
        arg_min(m.observation, m.span_id) AS observation, bool_or(m.result_failed) AS result_failed,
        arg_min(m.mutability, m.span_id) AS mutability, arg_min(m.mutability_source, m.span_id) AS mutability_source, arg_min(m.idempotency_key, m.span_id) AS idempotency_key,
        arg_min(m.provider, m.span_id) AS provider, arg_min(m.model, m.span_id) AS model, arg_min(m.response_id, m.span_id) AS response_id,
        arg_min(m.input_messages, m.span_id) AS input_messages, arg_min(m.output_messages, m.span_id) AS output_messages, arg_min(m.thought, m.span_id) AS thought,
        arg_min(m.offered_tools, m.span_id) AS offered_tools, arg_min(m.finish_reason, m.span_id) AS finish_reason,
        bool_or(m.failed) AS failed, arg_min(m.error_type, m.span_id) FILTER (WHERE m.failed) AS error_type,
        arg_min(m.error_message, m.span_id) FILTER (WHERE m.failed) AS error_message,
        arg_min(m.cost_usd, m.span_id) AS cost_usd, arg_min(m.time_to_first_token_ms, m.span_id) AS time_to_first_token_ms,
        arg_min(m.input_tokens, m.span_id) AS input_tokens, arg_min(m.output_tokens, m.span_id) AS output_tokens, arg_min(m.cached_input_tokens, m.span_id) AS cached_input_tokens,
        arg_min(m.cache_write_tokens, m.span_id) AS cache_write_tokens, arg_min(m.reasoning_tokens, m.span_id) AS reasoning_tokens
    FROM duplicates AS d JOIN mapped AS m ON m.trace_id = d.trace_id AND m.span_id = d.span_id
    GROUP BY d.trace_id, d.duplicate_of
)
SELECT m.* REPLACE (
    coalesce(m.tool_call_id, t.tool_call_id) AS tool_call_id,
    coalesce(m.arguments, t.arguments) AS arguments,
    coalesce(m.arguments_hash, t.arguments_hash) AS arguments_hash,
    coalesce(m.observation, t.observation) AS observation,
    coalesce(m.result_failed, t.result_failed) AS result_failed,
    coalesce(m.mutability, t.mutability) AS mutability,
    coalesce(m.mutability_source, t.mutability_source) AS mutability_source,
    coalesce(m.idempotency_key, t.idempotency_key) AS idempotency_key,
    coalesce(m.provider, t.provider) AS provider,
    coalesce(m.model, t.model) AS model,
    coalesce(m.response_id, t.response_id) AS response_id,
    coalesce(m.input_messages, t.input_messages) AS input_messages,
    coalesce(m.output_messages, t.output_messages) AS output_messages,
    coalesce(m.thought, t.thought) AS thought,
    coalesce(m.offered_tools, t.offered_tools) AS offered_tools,
    coalesce(m.finish_reason, t.finish_reason) AS finish_reason,
    -- A tool's failure is known to the span nearest to it; a model call that one library saw fail has failed.
    coalesce(m.failed OR (t.failed AND m.kind = 'tool'), FALSE) AS failed,
    coalesce(m.error_type, t.error_type) AS error_type,
    coalesce(m.error_message, t.error_message) AS error_message,
    coalesce(m.cost_usd, t.cost_usd) AS cost_usd,
    coalesce(m.time_to_first_token_ms, t.time_to_first_token_ms) AS time_to_first_token_ms,
    coalesce(m.input_tokens, t.input_tokens) AS input_tokens,
    coalesce(m.output_tokens, t.output_tokens) AS output_tokens,
    coalesce(m.cached_input_tokens, t.cached_input_tokens) AS cached_input_tokens,
    coalesce(m.cache_write_tokens, t.cache_write_tokens) AS cache_write_tokens,
    coalesce(m.reasoning_tokens, t.reasoning_tokens) AS reasoning_tokens
)
FROM mapped AS m LEFT JOIN taken AS t USING (trace_id, span_id);
-- end if

-- if NOT EXISTS (FROM duplicates)
DROP TABLE IF EXISTS merged;
ALTER TABLE mapped RENAME TO merged;
-- end if
