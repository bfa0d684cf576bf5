"""How wide text is, without a browser: fitting and wrapping lines for pictures drawn in Python."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from itertools import islice

ELLIPSIS = "…"

# Advance widths of Inter in thousandths of the type size. Systems without it set a face of
# about this width or narrower, so what fits here fits there.
_LETTERS = "".join(map(chr, range(32, 127))) + "·–—…‘’“”•×"
_REGULAR = """
281 278 403 631 638 812 639 222 362 362 500 659 280 460 276 357 625 464 605 636 642 608 624 571
616 624 276 280 659 659 659 507 936 676 651 727 719 598 587 743 740 264 543 652 562 889 753 761
635 761 639 638 642 741 676 949 642 665 625 362 357 362 469 452 497 564 621 558 621 582 361 609
591 237 237 544 237 869 585 597 609 609 372 523 364 581 557 812 540 557 541 362 327 362 659
276 500 1000 821 199 185 381 381 562 659
"""
_BOLD = """
232 325 392 650 655 859 674 209 409 409 565 680 303 469 298 390 688 489 630 659 678 645 660 595
661 660 298 303 680 680 680 562 1031 748 661 752 727 613 585 761 746 281 570 690 567 915 735 782
648 783 656 655 668 729 748 1036 714 724 667 409 390 409 488 477 497 580 635 587 635 598 386 633
624 272 272 582 272 912 622 614 632 632 409 562 388 622 586 850 574 586 572 409 374 409 680
298 500 1000 799 242 228 422 421 464 680
"""
_WIDTHS = {
    bold: dict(zip(_LETTERS, map(int, table.split()), strict=True))
    for bold, table in ((False, _REGULAR), (True, _BOLD))
}
_OTHER = {False: 620, True: 660}
_BROAD = 850  # Tamil, Malayalam, Thai, Myanmar, Khmer and their neighbours
_WIDE = 1000
_EMOJI = 1250
_MARK_WITH_WIDTH = 300
_JOINER = "\u200d"


def text_width(text: str, size: float, bold: bool = False) -> float:
    """About how wide a line of text is, in the unit of `size`."""
    return sum(_cluster_width(cluster, bold) for cluster in clusters(text)) * size / 1000


LONGEST_LINE = 2_000
"""Characters that are looked at for a line: no picture has room for as many."""


def fit(text: str, size: float, width: float, bold: bool = False) -> str:
    """The text on one line, cut with an ellipsis where it is wider than `width`."""
    return (wrap(" ".join(text.split()), size, width, 1, bold) or [""])[0]


def wrap(text: str, size: float, width: float, lines: int, bold: bool = False) -> list[str]:
    """At most `lines` lines no wider than `width`; an ellipsis ends them where text is left.

    Lines break at newlines, spaces, between wide East Asian characters, and inside a word that
    has no other place to break.
    """
    made = _lines(text[: LONGEST_LINE * lines], size, width, bold)
    kept = list(islice(made, lines))
    if kept and next(made, None) is not None:
        kept[-1] = _end_with_ellipsis(kept[-1], size, width, bold)
    return kept


def is_rtl(text: str) -> bool:
    """Whether the first character with a direction of its own runs from right to left."""
    for character in text:
        direction = unicodedata.bidirectional(character)
        if direction in ("L", "R", "AL"):
            return direction != "L"
    return False


def clusters(text: str) -> Iterator[str]:
    """What a reader sees as one character: a base with its marks, joined emoji, a flag."""
    cluster = ""
    for character in text:
        if cluster and _belongs_to(cluster, character):
            cluster += character
        else:
            if cluster:
                yield cluster
            cluster = character
    if cluster:
        yield cluster


def _belongs_to(cluster: str, character: str) -> bool:
    if unicodedata.category(character) in ("Mn", "Me", "Mc"):
        return True
    if _is_hidden(character) or (cluster[-1] == _JOINER and _is_symbol(character)):
        return True  # the joiner itself is hidden
    if 0x1F3FB <= ord(character) <= 0x1F3FF or 0x1160 <= ord(character) <= 0x11FF:
        return True  # a skin tone; the vowel or tail of a decomposed Hangul syllable
    return len(cluster) == 1 and _is_flag_half(cluster) and _is_flag_half(character)


def _is_flag_half(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF


def _is_symbol(character: str) -> bool:
    return unicodedata.category(character) == "So"


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) == "Cf"


def _cluster_width(cluster: str, bold: bool) -> int:
    first = cluster[0]
    marks = sum(unicodedata.category(mark) == "Mc" for mark in cluster[1:])
    return _base_width(first, bold) + _MARK_WITH_WIDTH * marks


def _base_width(character: str, bold: bool) -> int:
    known = _WIDTHS[bold].get(character)
    if known is not None:
        return known
    category = unicodedata.category(character)
    if unicodedata.east_asian_width(character) in ("W", "F"):
        return _EMOJI if _is_symbol(character) else _WIDE
    if _is_symbol(character):
        return _EMOJI
    if category in ("Mn", "Me", "Cf"):
        return 0
    if 0x0B00 <= ord(character) < 0x10A0 or 0x1780 <= ord(character) < 0x1800:
        return _BROAD
    unaccented = unicodedata.normalize("NFD", character)[0]
    return _WIDTHS[bold].get(unaccented, _OTHER[bold])


def _lines(text: str, size: float, width: float, bold: bool) -> Iterator[str]:
    for paragraph in text.splitlines():
        line = ""
        for piece in _pieces(paragraph):
            if text_width((line + piece).rstrip(), size, bold) <= width:
                line += piece
                continue
            if line.strip():
                yield line.rstrip()
            line = piece.lstrip()
            while text_width(line.rstrip(), size, bold) > width:
                head = _longest_start(line, size, width, bold)
                yield head
                line = line[len(head) :]
        if line.strip():
            yield line.rstrip()


def _pieces(paragraph: str) -> Iterator[str]:
    """What may not be broken: words with the spaces behind them, single wide characters."""
    piece = ""
    for cluster in clusters(paragraph):
        wide = unicodedata.east_asian_width(cluster[0]) in ("W", "F")
        after_space = piece[-1:].isspace() and not cluster.isspace()
        if piece and not cluster.isspace() and (wide or after_space or _ends_wide(piece)):
            yield piece
            piece = ""
        piece += cluster
    if piece:
        yield piece


def _ends_wide(piece: str) -> bool:
    return unicodedata.east_asian_width(piece[0]) in ("W", "F")


def _longest_start(text: str, size: float, width: float, bold: bool) -> str:
    """The longest start of whole clusters within the width; at least one of them."""
    kept = used = 0
    for cluster in clusters(text):
        used += _cluster_width(cluster, bold) * size / 1000
        if kept and used > width:
            break
        kept += len(cluster)
    return text[:kept]


def _end_with_ellipsis(line: str, size: float, width: float, bold: bool) -> str:
    if text_width(line + ELLIPSIS, size, bold) > width:
        line = _longest_start(line, size, width - text_width(ELLIPSIS, size, bold), bold)
        whole_words = line.rpartition(" ")[0]
        if len(whole_words) > 0.6 * len(line):
            line = whole_words
    return line.rstrip(" .,;:") + ELLIPSIS
