"""The Watch tab: the batches of a server as they form and run, live."""
