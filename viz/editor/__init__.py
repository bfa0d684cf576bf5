"""The prompt list: prompts with a token budget each, edited in the browser."""
