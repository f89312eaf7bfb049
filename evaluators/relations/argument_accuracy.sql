-- Expected values of arguments, by judged run, that its calls had, with the rules of tool_arguments: a change must be
-- right in every call, a read in one; what was redacted, and a tool that was not called, tells nothing.
WITH stated AS (
    SELECT
        c.case_id, tool.key AS tool_name, argument.key AS path, argument.value AS wanted,
        json_keys(argument.value) <> [] AND list_has_all(['max', 'min', 'requires_approval_above'], json_keys(argument.value)) AS is_limit
    FROM cases AS c, json_each(c.expected_arguments::JSON) AS tool, json_each(tool.value) AS argument
),
expected AS (
    SELECT t.trajectory_id, t.task_id, s.tool_name, s.path, s.wanted
    FROM trajectories AS t
    SEMI JOIN judged AS j ON j.trajectory_id = t.trajectory_id
    JOIN stated AS s ON s.case_id = t.task_id
    WHERE NOT s.is_limit
),
calls AS MATERIALIZED (
    SELECT
        row_number() OVER (ORDER BY e.trajectory_id, c.step_index, c.span_id, e.tool_name, e.path) AS pair, e.trajectory_id, e.tool_name, e.path, e.wanted,
        c.arguments, c.arguments_hash, c.mutability IS NOT DISTINCT FROM 'read_only' AS only_reads
    FROM expected AS e
    JOIN steps AS c ON c.trajectory_id = e.trajectory_id AND c.tool_name = e.tool_name
    WHERE c.kind = 'tool' AND c.tool_ran IS DISTINCT FROM FALSE AND c.effect IS DISTINCT FROM 'no'
),
-- Both sides of each comparison; a path leads through every element of a list, which then must all be right.
-- json_tree is given its document by a number: DuckDB repeats all that the function depends upon in each of its rows, and
-- a document of thousands of values would fill the memory.
sides AS MATERIALIZED (
    SELECT row_number() OVER () AS side, pair, place, value, hash(value::VARCHAR) AS value_key
    FROM (
        SELECT pair, '' AS place, wanted AS value FROM calls
        UNION ALL
        SELECT c.pair, node.fullkey, node.value
        FROM calls AS c, json_tree((SELECT d.arguments FROM calls AS d WHERE d.pair = c.pair)) AS node
        WHERE replace(regexp_replace(regexp_replace(node.fullkey, '^\$\.', ''), '\[\d+\]\.', '.', 'g'), '"', '') = c.path
    )
),
-- One spelling of a value: keys in order, 1 and 1.0 and "1" alike, texts trimmed and in NFC.
forms AS (
    SELECT
        s.pair, s.place, any_value(s.value::VARCHAR) AS words,
        list_sort(list(leaf.fullkey || '=' || coalesce(TRY_CAST(leaf.atom ->> '$' AS DECIMAL(38, 10))::VARCHAR, nfc_normalize(trim(leaf.atom ->> '$')), leaf.type))) AS form
    FROM sides AS s, json_tree((SELECT d.value FROM sides AS d WHERE d.side = s.side)) AS leaf
    GROUP BY s.pair, s.place, s.value_key
),
given AS (
    SELECT f.pair, bool_and(f.form = e.form) AS is_right, bool_or(regexp_matches(f.words, 'REDACTED|\[\+\d+ \w+\]')) AS is_hidden
    FROM forms AS f
    JOIN forms AS e ON e.pair = f.pair AND e.place = ''
    WHERE f.place <> ''
    GROUP BY f.pair
),
compared AS (
    SELECT
        c.trajectory_id, c.tool_name, c.path, bool_and(c.only_reads) AS only_reads, bool_or(coalesce(g.is_right, FALSE)) AS once_right,
        bool_or(NOT coalesce(g.is_right, FALSE) AND (c.arguments IS NULL OR coalesce(g.is_hidden, c.arguments_hash IS NOT NULL))) AS once_hidden,
        bool_or(NOT coalesce(g.is_right, FALSE) AND c.arguments IS NOT NULL AND NOT coalesce(g.is_hidden, c.arguments_hash IS NOT NULL)) AS once_wrong
    FROM calls AS c
    LEFT JOIN given AS g ON g.pair = c.pair
    GROUP BY c.trajectory_id, c.tool_name, c.path
),
-- Right, wrong or NULL: cannot be told.
verdicts AS (
    SELECT
        trajectory_id, tool_name, path,
        CASE WHEN only_reads AND once_right THEN TRUE WHEN only_reads AND once_hidden THEN NULL WHEN once_wrong THEN FALSE WHEN NOT once_hidden THEN TRUE END AS is_right
    FROM compared
)
SELECT e.trajectory_id, e.task_id, count(*) FILTER (WHERE v.is_right) AS hits, count(v.is_right) AS size, count(*) - count(v.is_right) AS blind
FROM expected AS e
LEFT JOIN verdicts AS v ON v.trajectory_id = e.trajectory_id AND v.tool_name = e.tool_name AND v.path = e.path
GROUP BY e.trajectory_id, e.task_id
ORDER BY e.trajectory_id
