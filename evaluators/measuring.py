"""Measures one evaluation: counts slice by slice, rates at the end, and the tasks or runs behind a value."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import duckdb

from agenttrace.evaluators import metrics, prepare, tallies
from agenttrace.evaluators.metrics import Cluster, Verdict
from agenttrace.evaluators.results import Finding, Measurement, Unjudged
from agenttrace.evaluators.tallies import Tally


class Measuring:
    """The metrics of one evaluation.

    Args:
        judges: The evaluators that run and return findings; a metric is measured where its evaluators run.
        with_cases: Whether there are benchmark cases; without them their metrics are not measured.
    """

    def __init__(self, judges: Collection[str], *, with_cases: bool) -> None:
        self._judges = judges
        self._tallies: dict[str, list[Tally]] = {
            metric: []
            for metric, evaluator in tallies.EVALUATOR_OF.items()
            if evaluator in judges and (with_cases or metric not in tallies.OF_CASES)
        }
        self._flagged: dict[str, list[Finding]] = {}
        self._lacking: dict[str, int] = {}

    def count(self, con: duckdb.DuckDBPyConnection) -> None:
        """Takes what the runs of one slice add, from a connection with the relations of its evaluators."""
        for metric, counted in self._tallies.items():
            counted += [Tally(*row) for row in prepare.rows(con, metric)]

    def rates(
        self, con: duckdb.DuckDBPyConnection, findings: Iterable[Finding], unjudged: Unjudged
    ) -> list[Measurement]:
        """Returns the rates of findings, and what was counted."""
        self._flagged = self._faults(findings)
        self._lacking = {name: len(unjudged.lacking(name)) for name in (*metrics.RATES, *metrics.SAFETY)}
        blind = {metric: unjudged.blind(name) for name, metric in metrics.RATES.items()}
        blind[metrics.SAFETY_RATE] = metrics.unsafe_to_say(unjudged)
        rates: list[Measurement] = []
        for metric, faults in self._flagged.items():
            flagged = {finding.trajectory_id for finding in faults}
            clusters = [Cluster(*row) for row in prepare.clusters(con, flagged, blind[metric])]
            rates.append(metrics.rate(metric, clusters))
        hidden = unjudged.of_kind("step_efficiency", "over_optimal")
        if tallies.EFFICIENCY in self._tallies:
            self._tallies[tallies.EFFICIENCY] = tallies.without(self._tallies[tallies.EFFICIENCY], hidden)
        return rates + [tallies.measure(metric, counted) for metric, counted in self._tallies.items()]

    def outcomes(self, con: duckdb.DuckDBPyConnection, runs: int, *, whole_store: bool) -> list[Measurement]:
        """Returns what the verdicts on trials tell; with `whole_store` also those on trials that are not in it."""
        verdicts = [Verdict(*row) for row in prepare.verdicts(con, whole_store=whole_store)]
        trials = [Tally(verdict.trajectory_id, verdict.task_id, int(verdict.passed), 1) for verdict in verdicts]
        self._tallies |= dict.fromkeys(metrics.OF_OUTCOMES, trials)
        return metrics.of_outcomes(verdicts, runs)

    def offenders(self, metric: str, tasks: Mapping[str, str | None]) -> Sequence[str]:
        """Returns the tasks or runs behind a value, worst first; none for quantiles and costs.

        For a rate without faults they are the evaluators that lacked evidence, which is why it may have no value.

        Args:
            metric: Name of the metric.
            tasks: Runs with findings, and the task of each.
        """
        if metric not in self._flagged:
            return tallies.shortfalls(self._tallies.get(metric, ()))
        if not self._flagged[metric]:
            return self._lacked(metric)
        texts: dict[str, str] = {}
        for finding in self._flagged[metric]:
            run = finding.trajectory_id or "-"
            task = tasks.get(run)
            place = f"run {run}" if task is None else f"run {run} of task {task}"
            texts.setdefault(run, f"{place}: {finding.message}")
        return list(texts.values())

    def _lacked(self, metric: str) -> list[str]:
        judges = (
            metrics.SAFETY if metric == metrics.SAFETY_RATE else [n for n, m in metrics.RATES.items() if m == metric]
        )
        counts = [(name, self._lacking[name]) for name in judges]
        return [f"{name} lacked evidence in {runs} run{'' if runs == 1 else 's'}" for name, runs in counts if runs]

    def _faults(self, findings: Iterable[Finding]) -> dict[str, list[Finding]]:
        """Returns the findings that each rate counts; a note tells of something worth a look, not of a fault."""
        faults = [finding for finding in findings if finding.severity != "note"]
        found = {
            metric: [finding for finding in faults if finding.evaluator == name]
            for name, metric in metrics.RATES.items()
            if name in self._judges
        }
        # Half of the evaluators of safety would make a rate that looks safer than it is.
        if set(metrics.SAFETY).issubset(self._judges):
            found[metrics.SAFETY_RATE] = [finding for finding in faults if metrics.is_violation(finding)]
        return found
