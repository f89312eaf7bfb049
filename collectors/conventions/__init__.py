"""One SQL file per span convention: its attributes to the columns of `steps`."""
