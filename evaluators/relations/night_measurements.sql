-- What an evaluation measured; the columns of `Measurement`, in the order of their arrival.
SELECT metric, dimensions, value, unit, n, n_not_evaluable, low, high
FROM measurements
WHERE run_id = $run_id
ORDER BY rowid
