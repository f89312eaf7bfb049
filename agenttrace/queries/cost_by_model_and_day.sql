-- What did each model cost on each day (UTC)?
-- since: only calls from this time on
-- until: only calls before this time

SELECT
    (start_time AT TIME ZONE 'UTC')::DATE AS day, provider, model, count(*) AS calls,
    sum(input_tokens) FILTER (WHERE usage_source = 'own') AS input_tokens,
    sum(output_tokens) FILTER (WHERE usage_source = 'own') AS output_tokens,
    count(*) FILTER (WHERE input_tokens IS NULL AND output_tokens IS NULL) AS calls_without_tokens,
    round(sum(cost_usd), 8) AS cost_usd,
    count(*) FILTER (WHERE cost_usd IS NULL) AS unpriced_calls
FROM steps
WHERE kind = 'model' AND duplicate_of IS NULL AND usage_source IS DISTINCT FROM 'aggregate'
    AND (getvariable('since') IS NULL OR start_time >= getvariable('since')::TIMESTAMPTZ)
    AND (getvariable('until') IS NULL OR start_time < getvariable('until')::TIMESTAMPTZ)
GROUP BY day, provider, model
ORDER BY day DESC NULLS LAST, cost_usd DESC NULLS LAST, provider, model
