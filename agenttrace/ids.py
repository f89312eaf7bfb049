"""Ids of traces and spans from a source of our own.

The SDK draws them from the module `random`: what the program draws after that changes, and a program that seeds it, as
benchmarks do for each task, gives two spans one id, of which a store keeps the first.
"""

import os
import random

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

_source = random.Random()  # noqa: S311 - ids are no secrets
os.register_at_fork(after_in_child=_source.seed)


class OwnIds(RandomIdGenerator):
    """Random ids that leave the program's random numbers alone, and do not follow their seed."""

    def generate_span_id(self) -> int:
        """Returns 64 random bits, which are not all zero."""
        return _source.getrandbits(64) or self.generate_span_id()

    def generate_trace_id(self) -> int:
        """Returns 128 random bits, which are not all zero."""
        return _source.getrandbits(128) or self.generate_trace_id()
