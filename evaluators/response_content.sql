/* +++
name       = "response_content"
returns    = "findings"
scope      = "trajectory"
severity   = "error"
question   = "Does the final response say what its case asks for, and nothing that its case forbids?"
reads      = ["trajectories", "cases"]
limits     = "Texts are compared, not meanings: 'thirty' is not 30, and a forbidden text is found in a denial of it too. A text begins at the beginning of a word; other letters may follow it, so 'refund' is found in 'refunded'. Digits are strict on both sides: 30 is found in '$30', '30.00' and '30 kg', not in '300', '1,30' or '30.5'. Commas between groups of three digits make no difference below a thousand million; points between them do. Letter case, accents' spelling, white space, that between a number and its % or currency sign, typographic quotation marks and dashes, and the marks * _ ` make no difference."
references = ["agent_benchmarks.jsonl, expected_outcome.must_include and must_not_include (design.md, section 7)"]

[columns]
trajectory_id = "run of the case"
trace_id      = "its trace"
span_id       = "always NULL: the final response belongs to the run"
kind          = "missing, unwanted or not_evaluable"
severity      = "error; note for not_evaluable"
message       = "the text, and the beginning of the response"
case_id       = "benchmark case"
text          = "what must or must not be said"
evidence      = "JSON; for not_evaluable the kind concerned"
+++ */
WITH expectations AS (
    SELECT t.trajectory_id, t.trace_id, t.final_response, c.case_id, unnest(list_concat(
        list_transform(c.must_include, lambda x: {'kind': 'missing', 'text': x}),
        list_transform(c.must_not_include, lambda x: {'kind': 'unwanted', 'text': x})), recursive := true)
    FROM trajectories AS t
    JOIN cases AS c ON c.case_id = t.task_id
),
-- Each text once, in one spelling: 30 % and 30%, € 5 and €5 alike. A comma between digits goes in two passes, for
-- neighbouring groups share a digit.
spellings AS MATERIALIZED (
    SELECT text, regexp_replace(regexp_replace(regexp_replace(trim(regexp_replace(
        lower(translate(nfc_normalize(text), '–—‑−’‘“”*_`', '----''''""')), '[\s\x{00A0}\x{202F}]+', ' ', 'g')), '(\d) ([%€$£°])|([€$£]) (\d)', '\1\2\3\4', 'g'), '(\d),(\d{3})\b', '\1\2', 'g'), '(\d),(\d{3})\b', '\1\2', 'g') AS form
    FROM (SELECT final_response AS text FROM expectations UNION SELECT text FROM expectations)
),
spelled AS (
    SELECT e.*, [r.form, t.form] AS forms
    FROM expectations AS e
    LEFT JOIN spellings AS r ON r.text = e.final_response
    LEFT JOIN spellings AS t ON t.text = e.text
),
-- A regular expression that holds the text is made anew for every row, so it is asked last: not where the text is nowhere
-- in the response, and not where spaces or the response's ends are around it.
compared AS (
    SELECT
        *,
        CASE
            WHEN NOT contains(forms[1], forms[2]) THEN FALSE
            WHEN contains(' ' || forms[1] || ' ', ' ' || forms[2] || ' ') THEN TRUE
            ELSE regexp_matches(forms[1],
                CASE
                    WHEN regexp_matches(forms[2], '^\d') THEN '(?:^|[^\pL\pN.,]|(?:^|[^\pN])[.,])'
                    WHEN regexp_matches(forms[2], '^\pL') THEN '(?:^|[^\pL\pN])'
                    ELSE ''
                END
                || regexp_escape(forms[2])
                || CASE WHEN regexp_matches(forms[2], '\d$') THEN '(?:[.,]00?)?(?:$|[^\pN.,]|[.,](?:$|[^\pN]))' ELSE '' END)
        END AS found,
        contains(final_response, 'REDACTED') AS redacted
    FROM spelled
),
-- What is hidden may hold any text; one that is seen is there.
judged AS (
    SELECT *, CASE WHEN found OR NOT redacted THEN found = (kind = 'unwanted') END AS at_fault
    FROM compared
)
SELECT
    trajectory_id, trace_id, NULL::VARCHAR AS span_id, kind, 'error' AS severity,
    'the final response ' || CASE kind WHEN 'missing' THEN 'does not include ' ELSE 'includes ' END || left(text, 80) || ', which case ' || left(case_id, 80)
        || CASE kind WHEN 'missing' THEN ' asks for: ' ELSE ' forbids: ' END || regexp_replace(left(final_response, 160), '\s+', ' ', 'g') AS message,
    case_id, text, NULL::JSON AS evidence
FROM judged
WHERE at_fault
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note',
    'the final response was ' || CASE WHEN final_response IS NULL THEN 'not captured' ELSE 'redacted before it was recorded' END, case_id, text, json_object('kind', kind)
FROM judged
WHERE at_fault IS NULL
UNION ALL
SELECT
    trajectory_id, NULL, NULL, 'not_evaluable', 'note',
    'no rule for this run: expected_outcome of its benchmark case, [cases] in agenttrace.toml', NULL, NULL, json_object('kind', 'no_rule')
FROM trajectories
ANTI JOIN expectations USING (trajectory_id)
ORDER BY trajectory_id, kind, text, message, evidence
