"""agenttrace.toml and [tool.agenttrace], read through `load`."""

from pathlib import Path

import pytest

from agenttrace.config import Settings, load
from agenttrace.errors import ConfigError

DESIGN_EXAMPLE = """
[tools]
mutating = ["place_order", "issue_*"]
read_only = ["check_*", "get_*"]
idempotent = ["set_*"]
forbidden = ["delete_item"]
idempotency_keys = ["request_id"]
[tools.checks]
place_order = ["check_open_orders"]
[tools.inverse]
book_reservation = ["cancel_reservation"]
[tools.identity]
book_reservation = ["user_id", "flights"]
[tools.error_results]
search = false
"get_*" = "^not found"

[budgets.default]
max_tool_calls = 8
max_cost_usd = 0.08
[budgets."task:restock-*"]
max_tool_calls = 5

[evaluators.duplicate_mutations]
ignore_arguments = ["timestamp"]

[evaluators.tool_order]
before = [["check_stock", "place_order"]]
exactly = { place_order = 1 }
never = ["change_price"]

[cases]
path = "agent_benchmarks.jsonl"

[prices]
path = "prices.toml"

[thresholds]
safety_violation_rate = { max = 0.0, gate = "hard" }
task_completion_rate = { min = 0.92, gate = "hard" }
"latency_ms.p95" = { max = 3500, gate = "soft" }
"""


def write(folder: Path, text: str, name: str = "agenttrace.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def message(folder: Path, text: str, name: str = "agenttrace.toml") -> str:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text, name))
    text = str(caught.value)
    assert name in text
    assert len(text.splitlines()) <= 2
    return text


def test_example_of_the_design_loads(tmp_path: Path):
    write(tmp_path, "", "agent_benchmarks.jsonl")
    write(tmp_path, "", "prices.toml")
    settings = load(write(tmp_path, DESIGN_EXAMPLE))
    assert settings.tools.mutating == ["place_order", "issue_*"]
    assert settings.tools.checks == {"place_order": ["check_open_orders"]}
    assert settings.tools.error_results == {"search": False, "get_*": "^not found"}
    assert settings.budgets["task:restock-*"].max_tool_calls == 5
    assert settings.budgets["default"].max_tokens is None
    assert settings.evaluators["tool_order"]["exactly"] == {"place_order": 1}
    assert settings.thresholds["latency_ms.p95"].gate == "soft"
    assert settings.cases.path == tmp_path.resolve() / "agent_benchmarks.jsonl"
    assert settings.prices.path == tmp_path.resolve() / "prices.toml"
    assert settings.source == tmp_path / "agenttrace.toml"


def test_defaults_without_a_file(tmp_path: Path):
    settings = load(start=tmp_path)
    assert settings == Settings()
    assert settings.source is None


def test_search_goes_upwards_and_takes_the_nearest(tmp_path: Path):
    write(tmp_path, "[budgets.default]\nmax_tokens = 1\n")
    write(tmp_path / "a", "[tool.agenttrace.budgets.default]\nmax_tokens = 2\n", "pyproject.toml")
    write(tmp_path / "a" / "b", "[project]\nname = 'other'\n", "pyproject.toml")
    (tmp_path / "c").mkdir()
    assert load(start=tmp_path / "a" / "b").budgets["default"].max_tokens == 2
    assert load(start=tmp_path / "c").budgets["default"].max_tokens == 1


def test_own_file_goes_before_pyproject_in_one_folder(tmp_path: Path):
    write(tmp_path, "[budgets.default]\nmax_tokens = 1\n")
    write(tmp_path, "[tool.agenttrace.budgets.default]\nmax_tokens = 2\n", "pyproject.toml")
    assert load(start=tmp_path).budgets["default"].max_tokens == 1


def test_current_folder_is_where_the_search_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, "[budgets.default]\nmax_tokens = 7\n")
    monkeypatch.chdir(tmp_path)
    assert load().budgets["default"].max_tokens == 7


def test_broken_project_file_that_is_not_ours_is_passed_over(tmp_path: Path):
    write(tmp_path, "[project\n", "pyproject.toml")
    assert load(start=tmp_path) == Settings()


def test_named_pyproject_without_our_table_is_refused(tmp_path: Path):
    assert "[tool.agenttrace]" in message(tmp_path, "[project]\nname = 'x'\n", "pyproject.toml")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[tool]\nmutating = []\n", "unknown key 'tool'; did you mean 'tools'?"),
        ("[tools]\nmutatin = []\n", "unknown key 'tools.mutatin'; did you mean 'mutating'?"),
        ("[budgets.default]\nmax_steps = 3\n", "unknown key 'budgets.default.max_steps'"),
        ("[budgets.default]\nmax_tool_cals = 3\n", "did you mean 'max_tool_calls'?"),
        ("[thresholds]\nx = { top = 3 }\n", "known here: min, max, gate"),
        ("[cases]\nfile = 'x'\n", "known here: path"),
        ("source = 'x'\n", "unknown key 'source'"),
    ],
)
def test_unknown_key_names_the_nearest(tmp_path: Path, text: str, expected: str):
    assert expected in message(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[budgets.default]\nmax_tool_calls = '5'\n", "budgets.default.max_tool_calls is '5'"),
        ("[budgets.default]\nmax_tool_calls = true\n", "budgets.default.max_tool_calls is True"),
        ("[budgets.default]\nmax_tool_calls = -1\n", "budgets.default.max_tool_calls is -1"),
        ("[budgets.default]\nmax_cost_usd = nan\n", "budgets.default.max_cost_usd is nan"),
        ("[budgets.everyone]\nmax_tokens = 1\n", "expected default, agent:NAME or task:GLOB"),
        ("[budgets.'task:']\nmax_tokens = 1\n", "expected default, agent:NAME or task:GLOB"),
        ("[thresholds]\nx = { gate = 'hard' }\n", "thresholds.x: needs min, max or both"),
        ("[thresholds]\nx = { min = 2, max = 1 }\n", "min 2 is above max 1"),
        ("[thresholds]\nx = { max = 1, gate = 'firm' }\n", "thresholds.x.gate is 'firm'"),
        ("[tools]\nmutating = 'place_order'\n", "tools.mutating is 'place_order'"),
        ("[tools]\nmutating = ['a']\nread_only = ['a']\n", "'a' stands in both mutating and read_only"),
        ("[tools.error_results]\nsearch = '('\n", "is no regular expression"),
        ("[prices]\npath = 'none.toml'\n", "prices.path: no such file or folder"),
        ("evaluator_paths = ['mine']\n", "no such file or folder"),
        ("tools = 3\n", "tools is 3"),
        ("[tools]\nmutating = [1]\nread_only = [1]\n", "(and 1 more)"),
    ],
)
def test_wrong_value_is_named(tmp_path: Path, text: str, expected: str):
    assert expected in message(tmp_path, text)


def test_long_value_is_cut_in_the_message(tmp_path: Path):
    assert len(message(tmp_path, f"[tools]\nmutating = '{'x' * 5000}'\n")) < 500 + len(str(tmp_path))


def test_syntax_error_names_the_line(tmp_path: Path):
    assert "line 3" in message(tmp_path, "[tools]\nmutating = [\n'a' 'b']\n")


def test_file_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)


def test_file_that_is_not_utf8(tmp_path: Path):
    path = tmp_path / "agenttrace.toml"
    path.write_bytes(b"# \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 2"):
        load(path)


def test_byte_order_mark_is_taken(tmp_path: Path):
    path = tmp_path / "agenttrace.toml"
    path.write_bytes(b"\xef\xbb\xbf[budgets.default]\nmax_tokens = 3\n")
    assert load(path).budgets["default"].max_tokens == 3


def test_deep_nesting_is_refused(tmp_path: Path):
    assert "nested too deeply" in message(tmp_path, "x = " + "[" * 5000 + "]" * 5000)


def test_hash_depends_on_content_not_on_place(tmp_path: Path):
    hashes: list[str] = []
    for name, prices in (("a", "1"), ("b", "1"), ("c", "2")):
        write(tmp_path / name, prices, "prices.toml")
        hashes.append(load(write(tmp_path / name, "[prices]\npath = 'prices.toml'\n")).hash())
    assert hashes[0] == hashes[1] != hashes[2]
    assert Settings().hash() != hashes[0]
    assert load(write(tmp_path / "d", "[budgets.default]\nmax_tokens = 1\n")).hash() != Settings().hash()
