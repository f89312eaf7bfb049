"""How spans get in: OTLP receiver, file readers, and one mapping per span convention."""
