-- How many steps the judged runs have.
SELECT count(*) FROM near_steps SEMI JOIN judged USING (trajectory_id)
