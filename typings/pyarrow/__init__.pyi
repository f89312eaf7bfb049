# pyarrow ships no types, and its stubs on the index are for another version: pyright takes it for Any.
from typing import Any

def __getattr__(name: str) -> Any: ...
