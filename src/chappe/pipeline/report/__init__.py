"""The report: one page that shows what the tables tell.

page.py       the page: figures at a glance, then a section for each table
chart.py      what all plots share: colours, axes, names that are safe to show
theme.py      how it looks, by day and by night
span.py       the time that the tables are about, in steps that can be seen
gold.py       the tables, read a little at a time
tally.py      rows added up by keys while they are read
sketches.py   times added up over rows, without Spark
latency.py delivery.py queues.py rooms.py sessions.py links.py audit.py ways.py     one section each
"""

from chappe.pipeline.report.gold import Period
from chappe.pipeline.report.page import Written, write

__all__ = ["Period", "Written", "write"]
