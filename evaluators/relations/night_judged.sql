-- The runs that an evaluation of a night has judged.
SELECT trajectory_id FROM judgements WHERE run_id = $run_id AND judged ORDER BY trajectory_id
