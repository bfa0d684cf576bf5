"""The "How it works" tab: why batches, and what they cost, told with recorded runs."""
