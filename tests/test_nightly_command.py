"""`agenttrace nightly` as a scheduler starts it: once, twice, two at a time, with nothing to do, with a busy store."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from agenttrace import judging
from agenttrace.cli import main
from agenttrace.errors import StoreBusyError
from agenttrace.evaluators import nightly
from agenttrace.spans import SpanRow
from agenttrace.spool import Spool, spool_folder

ROOT = Path(__file__).parent.parent
MakeSpan = Callable[..., SpanRow]
Answer = tuple[int, str, str]
Command = Callable[..., Answer]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], store: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `agenttrace nightly` in the folder of the store."""
    monkeypatch.chdir(store.parent)

    def run(*arguments: object) -> Answer:
        code = main(["nightly", "--db", str(store), *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def arrive(store: Path, make_span: MakeSpan) -> Callable[..., None]:
    """Lets runs arrive so many days ago."""

    def write(first: int, count: int = 1, *, days_ago: float = 0) -> None:
        at = datetime.now(UTC) - timedelta(days=days_ago)
        stated = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "shop",
            "agenttrace.final_response": "ok",
        }
        rows = [
            make_span(
                n, name="invoke_agent", operation_name="invoke_agent", tool_name=None, attributes=json.dumps(stated)
            )
            for n in range(first, first + count)
        ]
        path = Spool(spool_folder(store)).write("spans", rows)
        path.rename(path.with_name(f"{int(at.timestamp() * 1e9):020d}{path.name[20:]}"))

    return write


def rows(store: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(store, read_only=True) as con:
        return con.execute(query).fetchall()


def test_a_night_is_judged_once_and_said_again(command: Command, arrive: Callable[..., None], store: Path) -> None:
    arrive(1, 3)
    code, out, err = command("--format", "json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["run"]["trajectories"], found["night"]["previous"], found["night"]["seen"]) == (3, None, 3)
    arrive(4, 2)
    code, out, err = command("--format", "json", "--fail-on", "note")
    assert code == 0
    assert json.loads(out) == found
    assert re.fullmatch(r"the night of \S+ was judged at \S+ \S+ UTC; what came since waits for the next\.\n", err)
    assert rows(store, "SELECT count(*), (SELECT count(*) FROM judgements) FROM evaluation_runs") == [(1, 3)]


@pytest.mark.usefixtures("unmeasured")
def test_two_starts_at_once_are_one_night(arrive: Callable[..., None], store: Path) -> None:
    arrive(1, 40)
    program = str(Path(sys.executable).with_name("agenttrace"))
    started = [
        subprocess.Popen(
            [program, "nightly", "--db", store, "--format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    first, second = (json.loads(out) for out, _ in ended)
    assert first == second
    assert rows(store, "SELECT count(*), sum(trajectories) FROM evaluation_runs") == [(1, 40)]
    assert rows(store, "SELECT count(*), count(DISTINCT trajectory_id) FROM judgements") == [(40, 40)]


def test_a_night_without_runs_fails_unless_told_otherwise(
    command: Command, arrive: Callable[..., None], store: Path
) -> None:
    arrive(1, days_ago=2)
    assert command("--backfill", *_nights(2, 2))[0] == 0
    page = store.with_name("report.html")
    code, out, _ = command("--report", page)
    assert code == 2
    assert re.search(r"^NOT EVALUABLE: night of \S+, nothing has arrived since \d{4}-", out, re.MULTILINE)
    assert "nothing has arrived since" in page.read_text()
    assert command("--allow-empty")[0] == 0
    # Whoever mends it starts the job again.
    arrive(2)
    assert command()[0] == 0


def test_a_backfill_says_how_many_and_goes_on_where_it_stopped(command: Command, arrive: Callable[..., None]) -> None:
    arrive(1, 2, days_ago=3)
    arrive(3, 1, days_ago=2)
    code, out, err = command("--backfill", *_nights(3, 2))
    assert (code, err) == (0, "3 runs of 2 nights to judge\n")
    assert [re.sub(r"\d{4}-\d\d-\d\d", "DATE", line) for line in out.splitlines()] == [
        "PASSED: night of DATE, 2 runs, no findings, 6 verdicts not possible",
        "PASSED: night of DATE, 1 run, no findings, 3 verdicts not possible",
    ]
    assert command("--backfill", *_nights(3, 2)) == (0, "", "nothing to judge: these nights are complete.\n")


def _nights(first: int, last: int) -> list[str]:
    present = nightly.night_of(datetime.now(UTC), nightly.zone("UTC"))
    moment = datetime.now(UTC)
    assert nightly.night_of(moment, nightly.zone("UTC")) == present
    return [(present - timedelta(days=days)).isoformat() for days in (first, last)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tz", "Europe/Berln"], "nightly: --tz 'Europe/Berln' is no time zone; did you mean Europe/Berlin?"),
        (["--sample", "5"], "nightly: --sample 5 is no share; expected a number over 0, up to 1."),
        (["--sample", "0"], "nightly: --sample 0 is no share"),
        (
            ["--backfill", "yesterday", "today"],
            "nightly: --backfill yesterday today: expected two dates like 2026-01-31.",
        ),
        (["--backfill", "2026-02-02", "2026-02-01"], "the first date is after the second."),
        (["--backfill", "2026-02-02", "2999-02-01"], "is not over; end before it."),
        (["--backfill", "2026-02-01", "2026-02-02", "--report", "r.html"], "--backfill prints a line a night"),
    ],
)
def test_wrong_options_are_named(
    command: Command, arrive: Callable[..., None], arguments: list[str], message: str
) -> None:
    arrive(1)
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") <= 2


def test_without_a_store_nothing_is_made(command: Command, store: Path) -> None:
    code, _, err = command()
    assert code == 2
    assert f"{store}: no such store." in err
    assert list(store.parent.iterdir()) == []


def test_a_store_in_use_is_not_judged_in_part(
    command: Command, arrive: Callable[..., None], store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrive(1)
    assert command()[0] == 0
    arrive(2)
    monkeypatch.setattr(judging, "_NIGHT_WAIT_S", 0.1)
    script = f"import duckdb; con = duckdb.connect({str(store)!r}, read_only=True); print('open', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stdin is not None
        assert reader.stdout.readline() == "open\n"
        code, out, err = command()
        reader.stdin.write("\n")
    assert (code, out) == (2, "")
    assert "not all that has arrived is in the store, so the night was not judged; start it again." in err


def test_a_job_that_takes_too_long_is_named(arrive: Callable[..., None], store: Path) -> None:
    arrive(1)
    with (
        nightly.alone(store),
        pytest.raises(StoreBusyError, match="another nightly job has been at work"),
        nightly.alone(store, 0.05),
    ):
        pass
    with nightly.alone(store, 0.05):
        pass


# --- docs/scheduling.md


def _commands() -> Iterator[str]:
    """The command lines of all recipes, as their schedulers would run them."""
    text = (ROOT / "docs" / "scheduling.md").read_text(encoding="utf-8")
    yield from re.findall(r"^\$ (agenttrace nightly.*)$", text, re.MULTILINE)
    [cron] = re.findall(r"^\S+ \S+ \* \* \*  (cd .*)$", text, re.MULTILINE)
    yield cron
    yield from re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    [pod] = re.findall(r"^ +command: \[(agenttrace.*)\]$", text, re.MULTILINE)
    yield " ".join(part.strip() for part in pod.split(","))
    yield from re.findall(r'return "(\.venv/bin/agenttrace .*)"', text)
    [action] = re.findall(r"^    command: (nightly.*)$", text, re.MULTILINE)
    yield f"agenttrace {action}"


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    "line",
    sorted({line.replace("/srv/agents/", "") for line in _commands()}),
    ids=lambda line: re.sub(r"\W+", "-", str(line))[-40:],
)
def test_each_recipe_of_the_documentation_runs(
    line: str, arrive: Callable[..., None], store: Path, tmp_path: Path
) -> None:
    arrive(1)
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "agenttrace").symlink_to(Path(sys.executable).with_name("agenttrace"))
    mail = programs / "mail"
    mail.write_text("#!/bin/sh\ncat > mailed\n")
    mail.chmod(0o755)
    line = line.replace("cd /srv/agents", f"cd {tmp_path}").replace("/data", str(tmp_path))
    # What cron gives to a job, and little more.
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "HOME": str(tmp_path), "SHELL": "/bin/sh", "LANG": "C.UTF-8"}
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "mailed").exists()
    if "--report" in shlex.split(line):
        assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert os.path.exists(store)
