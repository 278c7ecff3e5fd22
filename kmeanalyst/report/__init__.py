"""The report: one self-contained page for a colleague: what a release is, guarantees, shows and cannot show.

`facts` asks the release, `guarantee` and `caveats` put into words, `charts` draws, `page` makes one HTML file that loads nothing.
Names and levels are a stranger's: `markup` escapes them, and the page's policy allows one script and one style, by their hashes.
"""

from kmeanalyst.report.facts import ReleaseFacts, facts_of
from kmeanalyst.report.methods import methods
from kmeanalyst.report.page import report_html, write_report

__all__ = ["ReleaseFacts", "facts_of", "methods", "report_html", "write_report"]
