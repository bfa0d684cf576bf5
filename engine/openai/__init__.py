"""The engine under OpenAI's API: what a client asks for joins a static batch."""
