"""HTML files as their elements, for the tests of what is taken away."""

from html.parser import HTMLParser


class Reader(HTMLParser):
    """The elements of a page with their attributes, and what stands in its scripts."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.scripts, self.inside = [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.inside == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag):
        self.inside = ""

    @property
    def outline(self):
        """The elements and the names of their attributes, in order."""
        return [(tag, sorted(attributes)) for tag, attributes in self.elements]
