"""Tables that yield Arrow record batches: files (also in stores), datasets, streams, databases. A domain encodes them elsewhere.

Both sides use this room: the analyst for samples, the curator, behind guards, for private rows.
"""
