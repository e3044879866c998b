"""The papers of a deletion request: what was erased, a signed record, its check, the ledger."""
