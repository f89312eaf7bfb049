"""What is judged: one SQL file per evaluator, the runner, and the reports."""
