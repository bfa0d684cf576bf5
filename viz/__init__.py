"""Pictures and words from a Run; needs neither torch nor transformers."""
