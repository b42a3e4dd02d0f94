"""Where evidence comes from: each source takes a step and yields records. Sources do not know each other."""
