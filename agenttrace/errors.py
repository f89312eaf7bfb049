"""All exceptions of agenttrace.

AgentTraceError
├── ConfigError        a configuration, evaluator or case file is wrong
├── DecodeError        bytes are not what their format says
├── StoreError         the store cannot be used
│   ├── StoreBusyError     another process holds the DuckDB file
│   └── StoreMissingError  no database where one was expected
├── SpoolError         a segment cannot be written or read
│   ├── SpoolFullError     the spool is at its cap
│   └── OtherReleaseError  another release has written the segment
└── UsageError         a command was asked for something it cannot do
"""


class AgentTraceError(Exception):
    """Base of all exceptions of agenttrace; its text is one or two lines for a user."""


class ConfigError(AgentTraceError):
    """A configuration, evaluator or case file is wrong; the text names file, key and value."""


class DecodeError(AgentTraceError):
    """Bytes are not what their format says."""


class StoreError(AgentTraceError):
    """The store cannot be used."""


class StoreBusyError(StoreError):
    """Another process holds the DuckDB file."""


class StoreMissingError(StoreError):
    """No database where one was expected."""


class SpoolError(AgentTraceError):
    """A segment cannot be written or read."""


class SpoolFullError(SpoolError):
    """The spool is at its cap; nothing was written."""


class OtherReleaseError(SpoolError):
    """The segment is whole, and of a kind or shape that this release does not know."""


class UsageError(AgentTraceError):
    """A command was asked for something that it cannot do."""
