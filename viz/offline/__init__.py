"""A whole run as one page that needs no network."""
