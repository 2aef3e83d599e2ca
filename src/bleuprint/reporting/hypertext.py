"""Markdown of the report as HTML of its page, and text that shows every character that it holds.

Markdown here is the report's own: names and texts in it are escaped already. Of HTML a line break alone is let through.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import zip_longest

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from bleuprint.reporting.markdown import ABSENT

SHOWN_AS_CODE = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}  # controls, marks of direction, private use, line separators
JOINERS = "\u200c\u200d"  # they shape letters and turn nothing round
BREAK = re.compile(r"<br ?/?>")


def to_html(markdown: str) -> Markup:
    """Return blocks of Markdown as HTML: tables can be scrolled and say of each cell under which head it stands."""
    tokens = PARSER.parse(markdown)
    label_cells(tokens)
    return Markup(PARSER.renderer.render(tokens, PARSER.options, {}))


def inline(markdown: str) -> Markup:
    """Return one line of Markdown, such as a table's cell, as HTML without a paragraph."""
    return Markup(PARSER.renderInline(markdown.replace("\\|", "|")))


def visible(text: str) -> Markup:
    """Return text as HTML in which characters that nobody sees, or that turn text round, stand as ⟨U+202E⟩."""
    pieces = (
        Markup("<span class=unseen>{}</span>").format(named(character)) if is_unseen(character) else escape(character)
        for character in text
    )
    return Markup("").join(pieces)


def named(text: str) -> str:
    """Return text, not HTML, with those characters as ⟨U+202E⟩."""
    return "".join(f"⟨U+{ord(character):04X}⟩" if is_unseen(character) else character for character in text)


def is_unseen(character: str) -> bool:
    """Return whether nobody sees a character though it does something."""
    return unicodedata.category(character) in SHOWN_AS_CODE and character not in JOINERS


# --- Markdown ---------------------------------------------------------------------------------------------------------


def label_cells(tokens: Sequence[Token]) -> None:
    """Give each cell of a table's body the text of its column's head as `data-label`, for narrow screens.

    They leave out a cell that says that there is nothing.
    """
    heads: list[str] = []
    column = 0
    for token, following in zip_longest(tokens, tokens[1:]):
        if token.type == "table_open":
            heads = []
        elif token.type == "th_open" and following is not None:
            heads.append(plain(following))
            token.attrSet("scope", "col")
        elif token.type == "tr_open":
            column = 0
        elif token.type == "td_open":
            token.attrSet("data-label", heads[column])
            if following is not None and following.content == ABSENT:
                token.attrSet("class", "no-card")
            column += 1


def plain(token: Token) -> str:
    """Return the text of an inline token without its marks."""
    return "".join(child.content for child in token.children or () if child.type in ("text", "code_inline"))


def line_breaks_alone(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """Return a line break as it is and any other HTML as the text that it is."""
    content = tokens[index].content
    return "<br>" if BREAK.fullmatch(content) else str(escape(content))


def in_scroller(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Return the beginning of a table in a box that can be scrolled sideways, by the keyboard too."""
    return '<div class="scroller cards" tabindex="0" role="region" aria-label="table"><table>'


def close_scroller(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Return the end of what `in_scroller` began."""
    return "</table></div>"


def open_cell(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Return the beginning of a cell, whose content is one element: a narrow screen sets it beside its label."""
    return f"{self.renderToken(tokens, index, options, env)}<span>"


def close_cell(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    """Return the end of what `open_cell` began."""
    return "</span></td>"


def build_parser() -> MarkdownIt:
    """Return a parser of CommonMark and GitHub's tables."""
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")
    parser.add_render_rule("html_inline", line_breaks_alone)
    parser.add_render_rule("html_block", line_breaks_alone)
    parser.add_render_rule("table_open", in_scroller)
    parser.add_render_rule("table_close", close_scroller)
    parser.add_render_rule("td_open", open_cell)
    parser.add_render_rule("td_close", close_cell)
    return parser


PARSER = build_parser()
