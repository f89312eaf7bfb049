-- Tokens count once: a span's usage counts only where no span below it reports usage.
CREATE OR REPLACE TEMP TABLE usage AS
    SELECT p.trajectory_id, p.trace_id, p.span_id, p.kind, d.duplicate_of, m.provider, m.model, m.cost_usd, p.started,
        -- Where read and written tokens exceed the input, the producer left them out of it.
        CASE WHEN coalesce(m.cached_input_tokens, 0) + coalesce(m.cache_write_tokens, 0) > m.input_tokens
            THEN m.input_tokens + coalesce(m.cached_input_tokens, 0) + coalesce(m.cache_write_tokens, 0) ELSE m.input_tokens END AS input_tokens,
        m.output_tokens, m.cached_input_tokens, m.cache_write_tokens, m.reasoning_tokens,
        CASE WHEN d.duplicate_of IS NOT NULL THEN 'duplicate' WHEN p.kind IN ('model', 'retrieval') THEN 'own' ELSE 'aggregate' END AS usage_source
    FROM places AS p
    JOIN merged AS m USING (trace_id, span_id)
    LEFT JOIN duplicates AS d USING (trace_id, span_id)
    WHERE m.input_tokens IS NOT NULL OR m.output_tokens IS NOT NULL OR m.cost_usd IS NOT NULL OR p.kind = 'model';

CREATE OR REPLACE TEMP TABLE covered AS
WITH RECURSIVE up AS (
    SELECT n.trace_id, n.parent_span_id AS span_id
    FROM usage AS u JOIN nodes AS n USING (trace_id, span_id)
    WHERE (u.input_tokens IS NOT NULL OR u.output_tokens IS NOT NULL) AND EXISTS (FROM usage AS g WHERE g.trace_id = u.trace_id AND g.usage_source = 'aggregate')
    UNION
    SELECT n.trace_id, n.parent_span_id FROM up JOIN nodes AS n USING (trace_id, span_id)
)
SELECT DISTINCT trace_id, span_id FROM up WHERE span_id IS NOT NULL;

CREATE OR REPLACE TEMP TABLE counted AS
    SELECT u.*, u.usage_source = 'own' OR (u.usage_source = 'aggregate' AND c.span_id IS NULL) AS counts
    FROM usage AS u LEFT JOIN covered AS c USING (trace_id, span_id);
