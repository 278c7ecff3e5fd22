"""The report: one self-contained page for a colleague: what a release is, guarantees, shows and cannot show.

`facts` asks the release (nothing here estimates anything itself), `guarantee` and `caveats` put into words, `charts` draws, and
`page` puts all of it into one HTML file without any address: no script, style, font or image comes from elsewhere. Names and
levels are a stranger's: `markup` escapes whatever is not made there, and the page's own policy allows the browser one script
and one style, by their hashes.
"""

from kmeanalyst.report.facts import ReleaseFacts, facts_of
from kmeanalyst.report.page import report_html, write_report

__all__ = ["ReleaseFacts", "facts_of", "report_html", "write_report"]
