"""The fault campaigns: `make chaos`, not part of the tests, which run a short version of each.

Agents, receivers, compactors and evaluations are killed, starved, flooded and lied to. Whatever was acknowledged must
be in the store exactly once, and no agent may end otherwise than it would have. CHAOS="--seed 7 --only kills" runs one
campaign; the exit code is 1 where a span was lost or stored twice, an agent crashed, or something else did not hold.
"""

import argparse
import importlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

CAMPAIGNS = ("kills", "processes", "disk", "receiver", "redelivery")
_SHOWN_FAULTS = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 100_000)
    parser.add_argument("--only", choices=CAMPAIGNS, action="append")
    parser.add_argument("--folder", type=Path, default=None, help="where stores and ledgers go; else one under /tmp")
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="agenttrace-chaos-"))
    folder.mkdir(parents=True, exist_ok=True)
    # Some agents are other users.
    folder.chmod(0o755)
    print(f"seed {given.seed}, {folder}")
    print(
        f"{'campaign':<12}{'acknowledged':>13}{'found':>9}{'lost':>6}{'twice':>6}{'crashes':>8}{'s':>6}  done to them"
    )
    failed = False
    for name in given.only or CAMPAIGNS:
        started = time.monotonic()
        place = folder / name
        place.mkdir()
        tally = importlib.import_module(f"chaos_{name}").run(place, given.seed)
        failed = failed or tally.failed
        events = ", ".join(f"{number} {event}" for event, number in sorted(tally.events.items()))
        print(
            f"{name:<12}{tally.acknowledged:>13,}{tally.found:>9,}{tally.lost:>6}{tally.twice:>6}{tally.crashes:>8}"
            f"{time.monotonic() - started:>6.0f}  {events}",
            flush=True,
        )
        for fault in tally.faults[:_SHOWN_FAULTS]:
            print(f"  {fault}", flush=True)
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
