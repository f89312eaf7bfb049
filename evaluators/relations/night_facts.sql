-- One row: the night that was judged before $night, whether a later one has been, when the last record arrived, how many
-- runs have not ended.
SELECT
    (SELECT max(night)::VARCHAR FROM evaluation_runs WHERE night < $night::DATE AND trajectories > 0) AS previous,
    (SELECT count(*) = 0 FROM evaluation_runs WHERE night > $night::DATE AND trajectories > 0) AS is_latest,
    strftime(max(last_arrival) AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S+00:00') AS arrived_until,
    count(*) FILTER (NOT complete) AS open
FROM trajectories
