"""Tables of what happened, made by Spark from the events of all nodes.

    bronze   the files of nodes, as they are                        bronze.py
    silver   `paths`, one row per message with every hop; `events`, what belongs to no message;
             `quarantine`, rows that make no sense; `clocks`, by how much each node's differs
    gold     latency, delivery, links, queues, sessions, audit

Everything is kept by the *birth hour* of what it belongs to: of a message the hour of its id, so
that one message is in one place whenever its events come. A run (job.py) takes the files that are
new and makes the hours anew that they touch, and nothing else. Only this package imports pyspark.
"""
