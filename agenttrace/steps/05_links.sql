-- Which model turn requested which execution, and what each call gave back as the next model call received it.
CREATE OR REPLACE TEMP TABLE turns AS
    SELECT p.trajectory_id, p.trace_id, p.span_id, coalesce(p.own_agent, '') AS agent, p.started, p.ended, m.origin, m.input_messages, m.output_messages,
        -- Some producers list the tools once, on the agent.
        coalesce(m.offered_tools, g.offered_tools) AS offered_tools,
        row_number() OVER (PARTITION BY p.trajectory_id ORDER BY p.started, p.span_id) AS turn
    FROM places AS p
    JOIN merged AS m USING (trace_id, span_id)
    LEFT JOIN merged AS g ON g.trace_id = p.trace_id AND g.span_id = p.own_agent
    ANTI JOIN duplicates AS d ON d.trace_id = p.trace_id AND d.span_id = p.span_id
    WHERE p.kind = 'model';

CREATE OR REPLACE TEMP TABLE requests AS
WITH parts AS (
    SELECT trajectory_id, trace_id, span_id, agent, turn, started, ended, unnest(list_transform(
        list_filter(written_parts(output_messages), lambda p: p.type = 'tool_call'),
        lambda p, i: struct_pack(part := p, pos := i))) AS r
    FROM turns
)
SELECT trajectory_id, trace_id, span_id AS turn_span_id, agent, turn, r.pos AS pos, started, ended,
    nullif(r.part.id, '') AS id, r.part.name AS name, name_key(r.part.name) AS name_key,
    decoded(r.part.arguments) AS arguments,
    canonical_arguments(decoded(r.part.arguments)) AS canonical,
    -- Some producers record a call with one argument as the bare value.
    CASE WHEN len(json_keys(decoded(r.part.arguments))) = 1
        THEN json_extract_string(decoded(r.part.arguments), '$.*')[1] END AS only_value
FROM parts;

-- A call and its result share an id; some producers write none, and then the tool's name. Both repeat: within a turn, in later turns, in other agents.
CREATE OR REPLACE TEMP MACRO answer_key(id, tool) AS coalesce('id ' || id, 'name ' || name_key(tool));

-- Results in the input of a model call. The history repeats in every call, so the last ones of a key belong to the turn before.
CREATE OR REPLACE TEMP TABLE results AS
WITH parts AS (
    SELECT trajectory_id, agent, turn, started, unnest(list_transform(
        read_results(input_messages), lambda p, i: struct_pack(part := p, pos := i))) AS r
    FROM turns
    -- Of a transcript, each result has its span.
    WHERE origin IS NULL
),
keyed AS (
    SELECT *, answer_key(nullif(r.part.id, ''), r.part.name) AS key FROM parts
)
SELECT trajectory_id, agent, turn, started, key, r.part AS part, row_number() OVER (PARTITION BY trajectory_id, turn, key ORDER BY r.pos DESC) AS from_last
FROM keyed WHERE key IS NOT NULL;

-- The first reader after the request counts: a model call of the same agent, else of another (after a hand-off).
CREATE OR REPLACE TEMP TABLE answered AS
WITH asked AS (
    SELECT trajectory_id, trace_id, turn_span_id, agent, turn, pos, answer_key(id, name) AS key,
        row_number() OVER (PARTITION BY trace_id, turn_span_id, answer_key(id, name) ORDER BY pos DESC) AS from_last
    FROM requests
),
readers AS (
    SELECT DISTINCT trajectory_id, agent, key, turn FROM results
),
any_readers AS (
    SELECT DISTINCT trajectory_id, key, turn FROM results
),
read AS (
    SELECT q.*, coalesce(own.turn, other.turn) AS reader_turn
    FROM asked AS q
    ASOF LEFT JOIN readers AS own
        ON own.trajectory_id = q.trajectory_id AND own.agent = q.agent AND own.key = q.key AND q.turn < own.turn
    ASOF LEFT JOIN any_readers AS other ON other.trajectory_id = q.trajectory_id AND other.key = q.key AND q.turn < other.turn
)
SELECT q.trace_id, q.turn_span_id, q.pos, r.started AS read_at,
    result_value(decoded(r.part.response)) AS response,
    coalesce(r.part.is_error = 'true', result_failed(decoded(r.part.response))) AS failed
FROM read AS q
JOIN results AS r ON r.trajectory_id = q.trajectory_id AND r.turn = q.reader_turn AND r.key = q.key AND r.from_last = q.from_last;

CREATE OR REPLACE TEMP TABLE executions AS
    SELECT p.trajectory_id, p.trace_id, p.span_id, coalesce(p.own_agent, '') AS agent, p.started, p.ended,
        m.tool_name, name_key(m.tool_name) AS name_key, m.tool_call_id,
        CASE WHEN json_type(m.arguments) = 'OBJECT' THEN canonical_arguments(m.arguments) END AS canonical,
        CASE WHEN json_type(m.arguments) <> 'OBJECT' THEN m.arguments ->> '$' END AS only_value
    FROM places AS p
    JOIN merged AS m USING (trace_id, span_id)
    ANTI JOIN duplicates AS d ON d.trace_id = p.trace_id AND d.span_id = p.span_id
    WHERE p.kind = 'tool';

CREATE OR REPLACE TEMP TABLE links (trace_id VARCHAR, span_id VARCHAR, turn_span_id VARCHAR, pos BIGINT);

-- By call id within the latest turn that asked before the tool began: ids repeat across turns, agents and runs in real data, even within one
-- turn. First the turns of the same agent, then of any; last the first turn after it, for clocks differ.
CREATE OR REPLACE TEMP MACRO links_by_id(same_agent, is_late) AS TABLE
WITH asked AS (
    SELECT trajectory_id, CASE WHEN same_agent THEN agent END AS agent, id, started, arg_max(turn_span_id, turn) AS turn_span_id
    FROM requests WHERE id IS NOT NULL GROUP BY ALL
),
free AS (
    SELECT e.*, CASE WHEN same_agent THEN e.agent END AS asking_agent
    FROM executions AS e ANTI JOIN links AS l USING (trace_id, span_id) WHERE e.tool_call_id IS NOT NULL
),
found AS (
    SELECT e.trace_id, e.span_id, e.started, e.tool_call_id, coalesce(before.turn_span_id, late.turn_span_id) AS turn_span_id
    FROM free AS e
    ASOF LEFT JOIN asked AS before ON before.trajectory_id = e.trajectory_id AND before.id = e.tool_call_id
        AND coalesce(before.agent, '') = coalesce(e.asking_agent, '') AND e.started >= before.started
    ASOF LEFT JOIN (FROM asked WHERE is_late) AS late ON late.trajectory_id = e.trajectory_id AND late.id = e.tool_call_id AND e.started < late.started
),
numbered AS (
    SELECT *, row_number() OVER (PARTITION BY trace_id, turn_span_id, tool_call_id ORDER BY started, span_id) AS nth FROM found WHERE turn_span_id IS NOT NULL
),
calls AS (
    SELECT trace_id, turn_span_id, id, pos, row_number() OVER same_id AS nth, count(*) OVER (PARTITION BY trace_id, turn_span_id, id) AS n
    FROM requests WHERE id IS NOT NULL WINDOW same_id AS (PARTITION BY trace_id, turn_span_id, id ORDER BY pos)
)
SELECT e.trace_id, e.span_id, e.turn_span_id, q.pos
FROM numbered AS e
-- A call that ran again without being asked again is another execution of the last request.
JOIN calls AS q ON q.trace_id = e.trace_id AND q.turn_span_id = e.turn_span_id AND q.id = e.tool_call_id AND q.nth = least(e.nth, q.n);

-- if EXISTS (FROM executions WHERE tool_call_id IS NOT NULL) AND EXISTS (FROM requests WHERE id IS NOT NULL)
INSERT INTO links FROM links_by_id(TRUE, FALSE);
-- end if

-- if EXISTS (FROM executions ANTI JOIN links USING (trace_id, span_id) WHERE tool_call_id IS NOT NULL) AND EXISTS (FROM requests WHERE id IS NOT NULL)
INSERT INTO links FROM links_by_id(FALSE, TRUE);
-- end if

-- if EXISTS (FROM executions ANTI JOIN links USING (trace_id, span_id)) AND EXISTS (FROM requests ANTI JOIN links USING (trace_id, turn_span_id, pos))
-- Without an id: the same tool with equal arguments, the n-th execution to the n-th request; then the same tool by order alone. Each first within
-- the agent.
CREATE OR REPLACE TEMP MACRO links_by_name(same_agent, same_values) AS TABLE
WITH free_requests AS (
    SELECT *, CASE WHEN same_agent THEN agent ELSE '' END AS asking_agent
    FROM requests AS q ANTI JOIN links AS l ON l.trace_id = q.trace_id AND l.turn_span_id = q.turn_span_id AND l.pos = q.pos
),
valued AS (
    SELECT *, CASE WHEN same_values THEN 'object ' || canonical ELSE '' END AS key FROM free_requests
    UNION ALL
    SELECT *, 'value ' || only_value FROM free_requests WHERE same_values
),
asked AS (
    SELECT *, row_number() OVER (PARTITION BY trajectory_id, asking_agent, name_key, key ORDER BY turn, pos) AS nth FROM valued WHERE key IS NOT NULL
),
free_executions AS (
    SELECT *, CASE WHEN same_agent THEN agent ELSE '' END AS asking_agent,
        CASE WHEN same_values THEN coalesce('object ' || canonical, 'value ' || only_value) ELSE '' END AS key
    FROM executions AS e ANTI JOIN links AS l USING (trace_id, span_id)
),
ran AS (
    SELECT *, row_number() OVER (PARTITION BY trajectory_id, asking_agent, name_key, key ORDER BY started, span_id) AS nth
    FROM free_executions WHERE key IS NOT NULL
)
SELECT e.trace_id, e.span_id, q.turn_span_id, q.pos
FROM ran AS e
JOIN asked AS q ON q.trajectory_id = e.trajectory_id AND q.asking_agent = e.asking_agent AND q.name_key = e.name_key AND q.key = e.key
    AND q.nth = e.nth AND q.started <= e.started;

-- Equal arguments within the latest turn that asked for them before the tool began: some producers record no arguments of a call that failed,
-- and its repetition is not the answer to the first request.
CREATE OR REPLACE TEMP MACRO links_by_values(same_agent) AS TABLE
WITH free_requests AS (
    SELECT *, CASE WHEN same_agent THEN agent ELSE '' END AS asking_agent
    FROM requests AS q ANTI JOIN links AS l ON l.trace_id = q.trace_id AND l.turn_span_id = q.turn_span_id AND l.pos = q.pos
),
valued AS (
    SELECT *, 'object ' || canonical AS key FROM free_requests WHERE canonical IS NOT NULL
    UNION ALL
    SELECT *, 'value ' || only_value FROM free_requests WHERE only_value IS NOT NULL
),
asked AS (
    SELECT trajectory_id, asking_agent, name_key, key, started, arg_max(turn_span_id, turn) AS turn_span_id FROM valued GROUP BY ALL
),
free_executions AS (
    SELECT *, CASE WHEN same_agent THEN agent ELSE '' END AS asking_agent, coalesce('object ' || canonical, 'value ' || only_value) AS key
    FROM executions AS e ANTI JOIN links AS l USING (trace_id, span_id)
),
ran AS (
    SELECT e.trace_id, e.span_id, e.name_key, e.key, q.turn_span_id,
        row_number() OVER (PARTITION BY e.trace_id, q.turn_span_id, e.name_key, e.key ORDER BY e.started, e.span_id) AS nth
    FROM free_executions AS e
    ASOF JOIN asked AS q ON q.trajectory_id = e.trajectory_id AND q.asking_agent = e.asking_agent AND q.name_key = e.name_key AND q.key = e.key
        AND e.started >= q.started
    WHERE e.key IS NOT NULL
),
calls AS (
    SELECT trace_id, turn_span_id, name_key, key, pos, row_number() OVER (PARTITION BY trace_id, turn_span_id, name_key, key ORDER BY pos) AS nth FROM valued
)
SELECT e.trace_id, e.span_id, e.turn_span_id, q.pos
FROM ran AS e
JOIN calls AS q ON q.trace_id = e.trace_id AND q.turn_span_id = e.turn_span_id AND q.name_key = e.name_key AND q.key = e.key AND q.nth = e.nth;

INSERT INTO links FROM links_by_values(TRUE);
INSERT INTO links FROM links_by_name(TRUE, TRUE);
INSERT INTO links FROM links_by_values(FALSE);
INSERT INTO links FROM links_by_name(FALSE, TRUE);
INSERT INTO links FROM links_by_name(TRUE, FALSE);
INSERT INTO links FROM links_by_name(FALSE, FALSE);
-- end if
