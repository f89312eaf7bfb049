-- Where each span stands: its outermost agent, nearest agent, nearest model or tool above it, and what it inherits.

-- A span that failed has failed, whatever its convention reads besides.
UPDATE mapped SET
    failed = coalesce(mapped.failed, s.status_code = 'error'),
    error_type = coalesce(mapped.error_type, s.exception_type),
    error_message = coalesce(mapped.error_message, s.exception_message, s.status_message)
FROM (
    SELECT trace_id, span_id, status_code, status_message, exception_type, exception_message
    FROM span_in LEFT JOIN span_exceptions USING (trace_id, span_id)
    WHERE status_code = 'error' OR exception_type IS NOT NULL
) AS s
WHERE mapped.trace_id = s.trace_id AND mapped.span_id = s.span_id;

-- Task, trial and tenant are stated as span attribute, resource attribute or (copied by the producer) baggage, in any convention.
CREATE OR REPLACE TEMP TABLE nodes AS
WITH stated AS (
    SELECT trace_id, span_id,
        CASE WHEN regexp_matches(attribute_keys, '"(?:agenttrace\.(?:task\.id|trial|tenant\.id)|tenant\.id|session\.id|user\.id)"')
            THEN from_json(attributes, '{"agenttrace.task.id": "VARCHAR", "agenttrace.trial": "JSON", "agenttrace.tenant.id": "VARCHAR", "tenant.id": "VARCHAR", "session.id": "VARCHAR", "user.id": "VARCHAR"}') END AS a,
        from_json(resource_attributes, '{"agenttrace.task.id": "VARCHAR", "agenttrace.trial": "JSON", "agenttrace.tenant.id": "VARCHAR", "tenant.id": "VARCHAR"}') AS r
    FROM span_in
)
SELECT
    s.trace_id, s.span_id, coalesce(m.parent_span_id, s.parent_span_id) AS parent_span_id,
    coalesce(m.started, s.start_time_unix_nano) AS started, coalesce(m.ended, s.end_time_unix_nano) AS ended,
    s.service_name, s.scope_name, s.received_at, s.status_code, s.status_message,
    coalesce(m.kind, 'other') AS mapped_kind, m.agent_name,
    -- An application's own root span may name the session, whatever convention its children follow.
    captured(coalesce(m.session_id, t.a."session.id")) AS session_id, coalesce(m.user_id, t.a."user.id") AS user_id,
    coalesce(m.tenant_id, t.a."agenttrace.tenant.id", t.a."tenant.id", t.r."agenttrace.tenant.id", t.r."tenant.id") AS tenant_id,
    coalesce(m.task_id, t.a."agenttrace.task.id", t.r."agenttrace.task.id") AS task_id,
    coalesce(m.trial, TRY_CAST(coalesce(t.a."agenttrace.trial", t.r."agenttrace.trial") ->> '$' AS INTEGER)) AS trial
FROM span_in AS s
LEFT JOIN mapped AS m USING (trace_id, span_id)
LEFT JOIN stated AS t USING (trace_id, span_id)
-- A dropped span stands for another one, or for nothing; what it may have below becomes a root.
WHERE coalesce(m.kind, 'other') <> 'drop';

CREATE OR REPLACE TEMP TABLE walk AS
WITH RECURSIVE down AS (
    SELECT n.trace_id, n.span_id, 0 AS depth,
        CASE WHEN n.mapped_kind IN ('agent', 'workflow') THEN n.span_id END AS outer_agent,
        CASE WHEN n.mapped_kind IN ('agent', 'workflow') THEN n.span_id END AS own_agent,
        NULL::VARCHAR AS parent_exec,
        CASE WHEN n.mapped_kind IN ('model', 'tool') THEN n.span_id END AS own_exec,
        n.mapped_kind = 'tool' AS below_tool, NULL::VARCHAR AS step_above, CASE WHEN n.mapped_kind NOT IN ('other', 'retrieval') THEN n.span_id END AS own_step,
        n.agent_name, n.session_id, n.user_id, n.tenant_id, n.task_id, n.trial
    FROM nodes AS n
    ANTI JOIN nodes AS p ON p.trace_id = n.trace_id AND p.span_id = n.parent_span_id AND n.span_id <> n.parent_span_id
    UNION ALL
    SELECT n.trace_id, n.span_id, d.depth + 1,
        coalesce(d.outer_agent, CASE WHEN n.mapped_kind IN ('agent', 'workflow') THEN n.span_id END),
        -- A workflow below an agent is a group, no agent of its own.
        CASE WHEN n.mapped_kind = 'agent' OR (n.mapped_kind = 'workflow' AND d.outer_agent IS NULL) THEN n.span_id ELSE d.own_agent END,
        d.own_exec,
        CASE WHEN n.mapped_kind IN ('model', 'tool') THEN n.span_id WHEN n.mapped_kind = 'agent' THEN NULL ELSE d.own_exec END,
        d.below_tool OR n.mapped_kind = 'tool', d.own_step, CASE WHEN n.mapped_kind NOT IN ('other', 'retrieval') THEN n.span_id ELSE d.own_step END,
        coalesce(n.agent_name, d.agent_name), coalesce(n.session_id, d.session_id), coalesce(n.user_id, d.user_id),
        coalesce(n.tenant_id, d.tenant_id), coalesce(n.task_id, d.task_id), coalesce(n.trial, d.trial)
    FROM down AS d
    JOIN nodes AS n ON n.trace_id = d.trace_id AND n.parent_span_id = d.span_id AND n.span_id <> n.parent_span_id
)
SELECT * FROM down;

-- Spans in a cycle of parent links hang below no root. Each stands alone: a row, never a crash.
INSERT INTO walk BY NAME
    SELECT n.trace_id, n.span_id, 0 AS depth,
        CASE WHEN n.mapped_kind IN ('agent', 'workflow') THEN n.span_id END AS outer_agent,
        CASE WHEN n.mapped_kind IN ('agent', 'workflow') THEN n.span_id END AS own_agent,
        CASE WHEN n.mapped_kind IN ('model', 'tool') THEN n.span_id END AS own_exec,
        n.mapped_kind = 'tool' AS below_tool,
        n.agent_name, n.session_id, n.user_id, n.tenant_id, n.task_id, n.trial
    FROM nodes AS n ANTI JOIN walk AS w USING (trace_id, span_id);

-- The trajectory of each span. A span outside of every agent belongs to the only outermost agent of its trace, else to the one
-- whose time holds it, else to the trace itself.
CREATE OR REPLACE TEMP TABLE places AS
WITH agents AS (
    SELECT w.trace_id, w.outer_agent, n.started, n.ended, count(*) OVER (PARTITION BY w.trace_id) AS agents_in_trace,
        row_number() OVER (PARTITION BY w.trace_id ORDER BY n.started, w.outer_agent) AS number
    FROM walk AS w JOIN nodes AS n USING (trace_id, span_id)
    WHERE w.outer_agent = w.span_id
),
-- How many agents had begun and ended by a time, and the sum of their numbers: where all but one of those that had begun had ended, the
-- difference of the sums is that one's number. (Comparing each span with each agent is quadratic.)
begun AS (
    SELECT DISTINCT trace_id, started AS at, count(*) OVER so_far AS n, sum(number) OVER so_far AS numbers
    FROM agents WHERE ended IS NULL OR ended >= started WINDOW so_far AS (PARTITION BY trace_id ORDER BY started)
),
over AS (
    SELECT DISTINCT trace_id, ended AS at, count(*) OVER so_far AS n, sum(number) OVER so_far AS numbers
    FROM agents WHERE ended >= started WINDOW so_far AS (PARTITION BY trace_id ORDER BY ended)
),
strays AS (
    SELECT w.trace_id, w.span_id, n.started, g.agents_in_trace, n.mapped_kind
    FROM walk AS w
    JOIN nodes AS n USING (trace_id, span_id)
    JOIN (SELECT DISTINCT trace_id, agents_in_trace FROM agents) AS g USING (trace_id)
    WHERE w.outer_agent IS NULL
),
hosts AS (
    SELECT s.trace_id, s.span_id, CASE
        WHEN s.agents_in_trace = 1 THEN 1
        WHEN s.mapped_kind IN ('model', 'tool', 'retrieval') AND b.n - coalesce(e.n, 0) = 1 THEN b.numbers - coalesce(e.numbers, 0) END AS number
    FROM strays AS s
    ASOF LEFT JOIN begun AS b ON b.trace_id = s.trace_id AND s.started >= b.at
    ASOF LEFT JOIN over AS e ON e.trace_id = s.trace_id AND s.started > e.at
),
outside AS (
    SELECT h.trace_id, h.span_id, g.outer_agent FROM hosts AS h JOIN agents AS g USING (trace_id, number)
)
SELECT w.*, coalesce(w.outer_agent, o.outer_agent) AS trajectory_agent,
    left(md5(w.trace_id || coalesce(w.outer_agent, o.outer_agent, '')), 16) AS trajectory_id,
    CASE
        WHEN n.mapped_kind = 'workflow' THEN CASE WHEN w.own_agent = w.span_id THEN 'agent' ELSE 'other' END
        ELSE n.mapped_kind END AS kind,
    n.started, n.ended, n.scope_name
FROM walk AS w
JOIN nodes AS n USING (trace_id, span_id)
LEFT JOIN outside AS o USING (trace_id, span_id);
