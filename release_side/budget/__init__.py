"""What has been spent: the ledger, its hash chain, and the composition of guarantees."""
