"""The command line `kmeanalyst`: it parses, calls and prints; every answer comes from a lower floor."""
