"""When what happens on the generated day."""

from __future__ import annotations

from tests.pipeline.traffic import DAY, HOUR, MINUTE, SECOND

# The hours with traffic.
HOURS = (0, 1, 2, 9, 12, 13, 22, 23)
# When the third node is killed, and when it is back; its last word is of the minute before.
KILLED = DAY + 12 * HOUR + 30 * MINUTE
LAST_WORD = KILLED - MINUTE
BACK = KILLED + 10 * MINUTE
# When the first node stops, and when it is back.
STOPPED = DAY + 22 * HOUR + 30 * MINUTE
RESTARTED = STOPPED + 10 * SECOND
END = DAY + 24 * HOUR - 5 * MINUTE
AWAY = {"n3": [(KILLED, BACK)], "n1": [(STOPPED, RESTARTED)]}
