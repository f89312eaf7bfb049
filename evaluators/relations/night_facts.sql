-- One row: the night that was judged before $night, when the last record arrived, how many runs have not ended.
SELECT
    (SELECT max(night)::VARCHAR FROM evaluation_runs WHERE night < $night::DATE AND trajectories > 0) AS previous,
    strftime(max(last_arrival) AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S+00:00') AS arrived_until,
    count(*) FILTER (NOT complete) AS open
FROM trajectories
