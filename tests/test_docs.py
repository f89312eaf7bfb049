"""The pages of docs/: what stands in their blocks is run by some test, and what they name is there."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trustme

from agenttrace.store import open_store, refresh

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs").glob("*.md"))
# Whose blocks a test of its own runs, and compares with what the page says.
RUN = {
    "collect.md": "test_docs.py",
    "data.md": "test_keeping.py",
    "scheduling.md": "test_nightly_command.py",
    "sql.md": "test_sql.py",
    "testing.md": "test_pytest_plugin.py",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_a_block_that_nobody_runs(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if not re.search(r"^```(?:console|python|toml|sql|bash|sh)", text, re.MULTILINE):
        return
    assert page.name in RUN, f"{page.name}: its commands and snippets are in no test"
    assert page.name in (ROOT / "tests" / RUN[page.name]).read_text(encoding="utf-8")


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    missing = [page.stem for page in PAGES if page.stem != "index" and not re.search(rf"^{page.stem}$", contents, re.M)]
    assert missing == []


@contextmanager
def receiver(command: str, folder: Path, variables: dict[str, str]) -> Iterator[list[str]]:
    """Runs a receiver on free ports until the end of the block; yields what it prints when it is ready."""
    words = [*shlex.split(command), "--http-port", "0", "--grpc-port", "0"]
    words[0] = str(Path(sys.executable).with_name(words[0]))
    with subprocess.Popen(words, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield [process.stdout.readline().rstrip() for _ in range(2)]
        finally:
            process.terminate()
            assert process.wait(60) == 0


@pytest.mark.usefixtures("unmeasured")
def test_the_page_on_the_receiver_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Roots of the machine would go before that of the page.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    alone, secured, agent = re.findall(
        r"```console\n(.*?)```", (ROOT / "docs" / "collect.md").read_text(encoding="utf-8"), re.DOTALL
    )
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(str(tmp_path / "server.key"))
    for blob in certificate.cert_chain_pems:
        blob.write_to_path(str(tmp_path / "server.pem"), append=True)
    command, *printed = alone.splitlines()
    with receiver(command.removeprefix("$ "), tmp_path, {}) as lines:
        assert [re.sub(r":\d+ ", ":PORT ", line) for line in lines] == [
            re.sub(r":\d+ ", ":PORT ", line) for line in printed
        ]
    token = {"AGENTTRACE_TOKEN": "s3cret"}
    command = secured.splitlines()[1].removeprefix("$ ")
    with receiver(command, tmp_path, token) as lines:
        [port] = re.findall(r"https://0\.0\.0\.0:(\d+)", "\n".join(lines))
        variables = agent.replace("$ ", "").replace("collector.example:4318", f"127.0.0.1:{port}")
        program = (
            "import agenttrace, os\nagenttrace.configure(os.environ['OTEL_EXPORTER_OTLP_ENDPOINT'])\n"
            "with agenttrace.run('shop'): pass\nassert agenttrace.flush().written == 1"
        )
        script = f"{variables}{shlex.quote(sys.executable)} -c {shlex.quote(program)}"
        done = subprocess.run(
            ["bash", "-ec", script], cwd=tmp_path, env=os.environ | token, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    refresh(tmp_path / "agenttrace.duckdb")
    with open_store(tmp_path / "agenttrace.duckdb") as con:
        assert con.execute("SELECT agent_name FROM trajectories").fetchall() == [("shop",)]
