"""One script per story or framework; `agenttrace demo` runs `grocery` and `refunds`."""
