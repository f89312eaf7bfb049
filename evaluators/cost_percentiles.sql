/* +++
name       = "cost_percentiles"
returns    = "measurements"
scope      = "summary"
question   = "How are cost, tokens and latency of runs distributed?"
reads      = ["steps", "trajectories"]
limits     = "The unit is a run: one that used several models counts once, under all their names together. The interval needs 6 runs for p50, 45 for p90, 92 for p95 and 476 for p99; with fewer its upper end is NULL, for p50 both ends."
references = [
    "Hyndman and Fan, Sample Quantiles in Statistical Packages, The American Statistician 50 (1996), definition 7 (linear interpolation)",
    "Conover, Practical Nonparametric Statistics (3rd ed., 1999), section 3.2: interval of a quantile from order statistics, here with continuity correction: without it, four runs would claim 95 % for what the binomial distribution gives 87.5 %",
]

[params.by]
type    = "VARCHAR[]"
default = ["agent"]
help    = "Groups beside all runs together: agent, model, task, service, day, or several joined by a comma, as in 'agent,day'."

[params.quantiles]
type    = "DOUBLE[]"
default = [0.5, 0.9, 0.95, 0.99]
help    = "Quantiles, 0 to 1."

[columns]
metric          = "latency_ms, cost_usd or total_tokens of a run"
dimensions      = "JSON object: the group, and quantile (p50, p90, p95, p99 or max)"
value           = "the quantile in the metric's unit; NULL where no run has the number"
unit            = "ms, usd or tokens"
n               = "runs behind the number"
n_not_evaluable = "runs without the number; for cost_usd also those with a model call that has no price"
low             = "lower end of the 95 % interval, same unit"
high            = "upper end of the 95 % interval, same unit"
+++ */
WITH used_models AS (
    SELECT trajectory_id, array_to_string(list_sort(list(DISTINCT model)), '+') AS models
    FROM steps
    WHERE kind = 'model'
    GROUP BY trajectory_id
),
groupings AS (
    -- The same keys in another order are the same groups: each run counts once in them.
    SELECT DISTINCT list_sort(list_distinct(list_filter(list_transform(string_split(spec, ','), lambda part: trim(part)), lambda part: part <> ''))) AS parts
    FROM (SELECT unnest(list_prepend('', $by::VARCHAR[])) AS spec)
),
runs AS (
    SELECT
        t.trajectory_id, t.duration_ms, t.total_tokens, t.unpriced_model_calls,
        -- A sum that leaves out the calls without a price is no cost of the run.
        CASE WHEN t.unpriced_model_calls = 0 THEN t.cost_usd END AS cost_usd,
        {
            'agent': t.agent_name, 'task': t.task_id, 'service': t.service_name, 'model': m.models,
            'day': strftime(t.start_time AT TIME ZONE 'UTC', '%Y-%m-%d')
        } AS place
    FROM trajectories AS t
    LEFT JOIN used_models AS m USING (trajectory_id)
),
-- One row per run and group that it belongs to; a run without the group's key, as a task, is in no such group.
members AS (
    SELECT
        r.duration_ms, r.total_tokens, r.cost_usd,
        to_json(map_from_entries(list_filter([
            {'k': 'agent', 'v': CASE WHEN list_contains(g.parts, 'agent') THEN r.place.agent END},
            {'k': 'day', 'v': CASE WHEN list_contains(g.parts, 'day') THEN r.place.day END},
            {'k': 'model', 'v': CASE WHEN list_contains(g.parts, 'model') THEN r.place.model END},
            {'k': 'service', 'v': CASE WHEN list_contains(g.parts, 'service') THEN r.place.service END},
            {'k': 'task', 'v': CASE WHEN list_contains(g.parts, 'task') THEN r.place.task END}
        ], lambda e: e.v IS NOT NULL))) AS place,
        len(g.parts) AS keys
    FROM runs AS r CROSS JOIN groupings AS g
),
numbers AS (
    SELECT place, unnest([
        {'metric': 'latency_ms', 'unit': 'ms', 'x': duration_ms},
        {'metric': 'cost_usd', 'unit': 'usd', 'x': cost_usd},
        {'metric': 'total_tokens', 'unit': 'tokens', 'x': total_tokens::DOUBLE}
    ], recursive := TRUE)
    FROM members
    WHERE len(json_keys(place)) = keys
),
groups AS (
    SELECT
        metric, unit, place, count(x) AS n, count(*) - count(x) AS n_not_evaluable, max(x) AS highest,
        list_sort(list(x), 'ASC', 'NULLS LAST') AS ordered,
        quantile_cont(x, $quantiles::DOUBLE[]) AS found
    FROM numbers
    GROUP BY metric, unit, place
),
quantiles AS (
    SELECT
        metric, unit, place, n, n_not_evaluable, ordered,
        unnest(list_transform($quantiles::DOUBLE[], lambda q, i: {'q': q, 'value': found[i]})) AS row
    FROM groups
),
results AS (
    SELECT
        metric, unit, place, 'p' || regexp_replace(round(row.q * 100, 6)::VARCHAR, '\.0$', '') AS quantile, row.q AS q, row.value AS value, n, n_not_evaluable,
        -- Ranks between which the true quantile lies in at least 95 % of samples; a rank outside of 1 to n gives NULL.
        ordered[greatest(0, floor(n * row.q + 0.5 - 1.959963984540054 * sqrt(n * row.q * (1 - row.q))))::BIGINT] AS low,
        ordered[ceil(n * row.q + 0.5 + 1.959963984540054 * sqrt(n * row.q * (1 - row.q)))::BIGINT] AS high
    FROM quantiles
    UNION ALL
    SELECT metric, unit, place, 'max', 2, highest, n, n_not_evaluable, NULL, NULL
    FROM groups
)
SELECT metric, json_merge_patch(place, json_object('quantile', quantile)) AS dimensions, value, unit, n, n_not_evaluable, low, high
FROM results
ORDER BY metric, len(json_keys(place)), place::VARCHAR, q
