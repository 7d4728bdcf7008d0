"""One stream of events (`stream`), and its views: counters (`counters`) and traces (`tracing`)."""
