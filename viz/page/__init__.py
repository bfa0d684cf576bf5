"""What frames the stage: the title line, notices, and the page's style."""
