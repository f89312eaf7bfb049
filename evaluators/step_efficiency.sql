/* +++
name       = "step_efficiency"
returns    = "findings"
scope      = "trajectory"
severity   = "warning"
question   = "Did the run make more tool calls than its task needs, or the same ones over and over?"
reads      = ["steps", "trajectories", "cases"]
limits     = "A read that is repeated because the first result fell out of the model's context, or to be sure that nothing changed from outside, counts as repeated. Results that hold a time or a request id never look the same. Tools that wait by their name (status, wait, poll, progress, heartbeat) may repeat. Where what the model was sent was not captured, a new message of the user between two reads is not seen. Keys of arguments are compared in any order on the outermost level only. A loop of more than four calls is not seen."
references = ["design.md, section 5, step_efficiency", "design.md, section 4, rule 2: steps of a case are executed tool calls"]

[columns]
trajectory_id    = "run"
trace_id         = "its trace"
span_id          = "last repeated call; NULL where the number of calls is the fault"
kind             = "over_allowed, over_optimal, repeated_read, loop or not_evaluable"
severity         = "warning; note for not_evaluable"
message          = "how many calls, of how many; or what was repeated, where"
related_span_ids = "earlier repeated calls, in order"
tool_name        = "tool of a repeated read"
observed         = "tool calls that the run made"
expected         = "tool calls that the case allows (over_allowed) or needs (over_optimal)"
ratio            = "observed / expected"
repeats          = "how often the read or the cycle of calls ran"
evidence         = "JSON; for not_evaluable the kind concerned"
+++ */
WITH made AS NOT MATERIALIZED (
    SELECT
        *, observation IS NULL OR (arguments_hash IS NULL AND (arguments IS NULL OR contains(arguments::VARCHAR, 'REDACTED'))) AS unseen,
        hash(observation::VARCHAR) AS observation_key
    FROM steps
    WHERE kind = 'tool' AND tool_ran IS DISTINCT FROM FALSE
),
-- Runs in which a tool gave the same result twice: everything below works on these few.
suspects AS MATERIALIZED (
    SELECT DISTINCT trajectory_id
    FROM (SELECT trajectory_id FROM made GROUP BY trajectory_id, hash(tool_name, observation_key) HAVING count(*) > 1)
),
executed AS MATERIALIZED (
    SELECT
        trajectory_id, agent_name, trace_id, span_id, step_index, tool_name, mutability, status, effect, turn_span_id, unseen, observation_key,
        -- Keys in any order. Redacted and cut arguments are known by the hash of the originals.
        hash(coalesce(arguments_hash, list_sort(map_entries(TRY_CAST(arguments AS MAP(VARCHAR, JSON))))::VARCHAR, arguments::VARCHAR)) AS argument_key
    FROM made
    SEMI JOIN suspects USING (trajectory_id)
),
-- How many messages of the user the model had seen when it asked: what a user asks for again is no waste.
turns AS (
    SELECT
        trace_id, span_id,
        len(list_filter(from_json(input_messages, '[{"role":"VARCHAR","parts":[{"type":"VARCHAR"}]}]'),
            lambda m: m.role = 'user' AND list_contains(list_transform(m.parts, lambda p: p.type), 'text'))) AS user_messages
    FROM steps
    SEMI JOIN suspects USING (trajectory_id)
),
placed AS (
    SELECT
        e.*,
        -- One agent, between two messages of the user: only there is a repeat a waste.
        hash((e.trajectory_id, e.agent_name, coalesce(t.user_messages, 0))) AS stretch,
        -- What may have changed the world makes a second look a new one.
        count(*) FILTER (WHERE e.mutability IS DISTINCT FROM 'read_only' AND e.effect IS DISTINCT FROM 'no')
            OVER (PARTITION BY e.trajectory_id ORDER BY e.step_index) AS changes
    FROM executed AS e
    LEFT JOIN turns AS t ON t.trace_id = e.trace_id AND t.span_id = e.turn_span_id
),
calls AS (
    SELECT
        *, row_number() OVER (PARTITION BY stretch ORDER BY step_index) AS position,
        -- Equal for calls that may be one another's repeats, NULL for those that are never any.
        CASE
            WHEN NOT unseen AND NOT regexp_matches(tool_name, 'status|wait|poll|progress|heartbeat', 'i')
            THEN hash((stretch, tool_name, argument_key, observation_key, status))
        END AS signature,
        hash((stretch, tool_name, argument_key)) AS look
    FROM placed
),
lagged AS MATERIALIZED (
    SELECT
        *,
        [lag(signature, 1) OVER before, lag(signature, 2) OVER before, lag(signature, 3) OVER before, lag(signature, 4) OVER before] AS signatures,
        [lag(look, 1) OVER before, lag(look, 2) OVER before, lag(look, 3) OVER before, lag(look, 4) OVER before] AS looks
    FROM calls
    WINDOW before AS (PARTITION BY stretch ORDER BY position)
),
-- A cycle of n calls: each is equal to the one n calls before it. Neighbours of that kind form an island.
echoes AS (
    SELECT trajectory_id, stretch, position, status, period, position - row_number() OVER (PARTITION BY stretch, period ORDER BY position) AS island
    FROM (SELECT *, unnest(list_filter([1, 2, 3, 4], lambda n: signatures[n] = signature)) AS period FROM lagged)
),
cycles AS (
    SELECT trajectory_id, stretch, period, min(position) - period AS first_position, max(position) AS last_position
    FROM echoes
    GROUP BY trajectory_id, stretch, period, island
    -- Three rounds. Where every call failed, the error repeats, and error_recovery tells it.
    HAVING count(*) >= 2 * period AND bool_or(status = 'ok')
),
-- A round after which the same call gave something else was a wait that came to its end.
waits AS (
    SELECT stretch, position - 1 AS last_position, unnest(list_filter([1, 2, 3, 4], lambda n: looks[n] = look)) AS period
    FROM lagged
),
-- Three rounds of two calls are also a cycle within six rounds of one: the longest counts, of equal ones the simplest.
loops AS (
    SELECT c.*
    FROM cycles AS c
    ANTI JOIN cycles AS o ON o.stretch = c.stretch AND o.first_position <= c.first_position AND o.last_position >= c.last_position
        AND (o.last_position - o.first_position, -o.period) > (c.last_position - c.first_position, -c.period)
    ANTI JOIN waits USING (stretch, last_position, period)
),
looped AS (
    SELECT c.*, l.period, l.first_position
    FROM calls AS c
    JOIN loops AS l ON l.stretch = c.stretch AND c.position BETWEEN l.first_position AND l.last_position
),
repeated AS (
    SELECT
        trajectory_id, period,
        list_sort(list({'step_index': step_index, 'trace_id': trace_id, 'span_id': span_id, 'tool_name': tool_name})) AS members
    FROM looped
    GROUP BY trajectory_id, stretch, period, first_position
    UNION ALL
    SELECT
        c.trajectory_id, NULL,
        list_sort(list({'step_index': c.step_index, 'trace_id': c.trace_id, 'span_id': c.span_id, 'tool_name': c.tool_name}))
    FROM calls AS c
    ANTI JOIN looped AS l ON l.stretch = c.stretch AND l.position = c.position
    -- A call that may have changed something begins a group of its own.
    WHERE c.status = 'ok' AND c.signature IS NOT NULL
    GROUP BY c.trajectory_id, c.stretch, c.changes, c.tool_name, c.argument_key
    -- A look whose answer changes is worth its repeats.
    HAVING count(*) > 1 AND count(DISTINCT c.observation_key) = 1
),
limits AS (
    SELECT
        t.trajectory_id, t.trace_id, t.tool_call_count AS observed, c.case_id,
        unnest([{'kind': 'over_allowed', 'verb': 'allows', 'expected': c.max_allowed_steps}, {'kind': 'over_optimal', 'verb': 'needs', 'expected': c.optimal_steps}], recursive := true)
    FROM trajectories AS t
    JOIN cases AS c ON c.case_id = t.task_id
),
-- One finding about the number of calls: over what is allowed is also over what is needed.
over AS (
    SELECT *
    FROM limits
    WHERE observed > expected
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY kind) = 1
),
-- Runs of which no tool call is recorded, though there may have been some.
hidden_runs AS (
    SELECT trajectory_id
    FROM (SELECT trajectory_id FROM trajectories WHERE coalesce(tool_call_count, 0) = 0)
    ANTI JOIN (
        SELECT trajectory_id
        FROM steps
        WHERE kind IN ('tool', 'model')
        GROUP BY trajectory_id
        HAVING bool_or(kind = 'tool') OR bool_and(coalesce(requested_tool_calls::VARCHAR, '') = '[]')
    ) USING (trajectory_id)
),
reads AS NOT MATERIALIZED (
    SELECT trajectory_id, tool_name, unseen FROM made WHERE mutability = 'read_only'
),
blind AS (
    SELECT trajectory_id, 'repeated_read' AS kind, NULL AS tool_name, 'no tool call was recorded, and the models may have asked for some' AS reason
    FROM hidden_runs
    UNION ALL
    SELECT trajectory_id, kind, NULL, 'no tool call was recorded, and the models may have asked for some'
    FROM limits
    SEMI JOIN hidden_runs USING (trajectory_id)
    WHERE expected IS NOT NULL
    UNION ALL
    SELECT trajectory_id, 'repeated_read', tool_name, 'arguments or results of ' || left(tool_name, 80) || ' were not captured: whether its calls repeat each other cannot be told'
    FROM reads
    SEMI JOIN (SELECT trajectory_id, tool_name FROM reads WHERE unseen) USING (trajectory_id, tool_name)
    GROUP BY trajectory_id, tool_name
    HAVING count(*) > 1
)
SELECT
    trajectory_id, members[-1].trace_id AS trace_id, members[-1].span_id AS span_id,
    CASE WHEN period IS NULL THEN 'repeated_read' ELSE 'loop' END AS kind, 'warning' AS severity,
    left(array_to_string(list_transform(members[:coalesce(period, 1)], lambda m: m.tool_name), ', '), 160)
        || format(' ran {:d} times', len(members) // coalesce(period, 1)) || CASE WHEN period IS NULL THEN '' ELSE ' in a row' END
        || ' with the same arguments and results (steps ' || left(array_to_string(list_transform(members, lambda m: m.step_index), ', '), 80) || ')'
        || CASE WHEN period IS NULL THEN ', and nothing in between changed anything' ELSE '' END AS message,
    list_transform(members[:-2], lambda m: m.span_id) AS related_span_ids, members[1].tool_name AS tool_name,
    NULL::BIGINT AS observed, NULL::BIGINT AS expected, NULL::DOUBLE AS ratio, len(members) // coalesce(period, 1) AS repeats, NULL::JSON AS evidence
FROM repeated
UNION ALL
SELECT
    trajectory_id, trace_id, NULL, kind, 'warning',
    format('the run made {:d} tool calls, {:d} more than the {:d} that case {} {}', observed, observed - expected, expected, left(case_id, 80), verb),
    [], NULL, observed, expected, observed / nullif(expected, 0), NULL, NULL
FROM over
UNION ALL
SELECT trajectory_id, NULL, NULL, 'not_evaluable', 'note', reason, [], tool_name, NULL, NULL, NULL, NULL, json_object('kind', kind)
FROM blind
ORDER BY trajectory_id, kind, span_id, message, evidence
