"""The rebuild, spans to steps and trajectories: SQL files that `agenttrace.rebuild` runs in the order of names."""
