"""Results of an evaluation as text, JSON, Markdown and HTML."""
