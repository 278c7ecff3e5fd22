"""Tables that yield Arrow record batches: files, datasets, streams, databases. Read here, encoded by a domain elsewhere.

Both sides use this room: the analyst for samples, the curator, behind guards, for private rows.
"""
