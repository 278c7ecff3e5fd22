"""The command line `release-side`: it parses, calls and prints."""
