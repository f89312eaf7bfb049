-- How two channels judged the runs that both of them judged, for each pair with at least two such runs.
SELECT
    a.source AS first, b.source AS second,
    count(*) FILTER (WHERE a.passed AND b.passed) AS both_passed,
    count(*) FILTER (WHERE a.passed AND NOT b.passed) AS only_first,
    count(*) FILTER (WHERE NOT a.passed AND b.passed) AS only_second,
    count(*) FILTER (WHERE NOT a.passed AND NOT b.passed) AS both_failed
FROM outcomes AS a
JOIN outcomes AS b USING (trajectory_id)
WHERE list_position(['checker', 'judge', 'human'], a.source) < list_position(['checker', 'judge', 'human'], b.source)
    AND a.passed IS NOT NULL AND b.passed IS NOT NULL
GROUP BY a.source, b.source
HAVING count(*) >= 2
ORDER BY list_position(['checker', 'judge', 'human'], a.source), list_position(['checker', 'judge', 'human'], b.source)
