"""A run as a slide for a talk."""
