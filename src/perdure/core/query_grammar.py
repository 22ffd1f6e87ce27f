"""The text of a query as sqlglot reads it: a dialect that knows a handful of words, no comments and no statements.

sqlglot takes half a second to load, so this module is loaded with the first query.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer as AnyTokenizer

from perdure.core.errors import InvalidArgument

MAX_CHARACTERS = 8_000
MAX_TOKENS = 1_000  #: words, marks and values
MAX_DEPTH = 20  #: of parentheses and NOTs in each other

FORM = "FIELD OPERATOR VALUE, joined by AND, OR, NOT and parentheses"
_STARTS_WITH = TokenType.GLOB  #: elsewhere an operator between a field and a text, as this one is
_T = TokenType
_KNOWN = {
    _T.VAR, _T.IDENTIFIER, _T.STRING, _T.NUMBER, _T.TRUE, _T.FALSE, _T.NULL, _T.AND, _T.OR, _T.NOT, _T.IN, _T.IS,
    _T.BETWEEN, _STARTS_WITH, _T.EQ, _T.NEQ, _T.LT, _T.LTE, _T.GT, _T.GTE, _T.L_PAREN, _T.R_PAREN, _T.COMMA, _T.DASH,
    _T.ORDER_BY, _T.ASC, _T.DESC,
}  # fmt: skip


class Language(Dialect):
    """Names stand as they are or between backticks, texts between single or double quotes."""

    class Tokenizer(AnyTokenizer):
        QUOTES: ClassVar = ["'", '"']
        STRING_ESCAPES: ClassVar = ["'", '"']
        IDENTIFIERS: ClassVar = ["`"]
        COMMENTS: ClassVar = []
        KEYWORDS: ClassVar = {
            "AND": _T.AND,
            "OR": _T.OR,
            "NOT": _T.NOT,
            "IN": _T.IN,
            "BETWEEN": _T.BETWEEN,
            "STARTS_WITH": _STARTS_WITH,
            "IS": _T.IS,
            "NULL": _T.NULL,
            "TRUE": _T.TRUE,
            "FALSE": _T.FALSE,
            "ORDER BY": _T.ORDER_BY,
            "ASC": _T.ASC,
            "DESC": _T.DESC,
            "<>": _T.NEQ,
            "!=": _T.NEQ,
            "<=": _T.LTE,
            ">=": _T.GTE,
        }


_language = Language()


def refused(at: int, what: str, expected: str, kind: str = "str") -> InvalidArgument:
    """The error for a query of which something is wrong at a character, counted from 0."""
    return InvalidArgument(f"query, character {at + 1}: {what}", field="query", limit=expected, kind=kind)


def tokens(text: str) -> list[Token]:
    """The words, marks and values of a query."""
    try:
        found: list[Token] = _language.tokenize(text)
    except TokenError:
        raise refused(len(text), "a quote is not closed", "the same quote at its end") from None
    if len(found) > MAX_TOKENS:
        what = f"it has {len(found)} words, marks and values"
        raise refused(found[MAX_TOKENS].start, what, f"at most {MAX_TOKENS}")
    opened: list[int] = []  # NOTs (or minus signs) before each parenthesis that is open
    nots = 0
    for token in found:
        if token.token_type not in _KNOWN:
            raise refused(token.start, f"{token.text!r} is not known here", FORM)
        if token.token_type == _T.L_PAREN:
            opened.append(nots)
            nots = 0
        elif token.token_type == _T.R_PAREN and opened:
            nots = opened.pop()
        else:
            nots = nots + 1 if token.token_type in (_T.NOT, _T.DASH) else 0
        if len(opened) + sum(opened) + nots > MAX_DEPTH:
            raise refused(token.start, "it is nested too deeply", f"at most {MAX_DEPTH} parentheses and NOTs deep")
    return found


def tree(found: list[Token], text: str) -> exp.Expr:
    """What sqlglot makes of the tokens of a condition."""
    parser = Parser(dialect=_language, error_level=ErrorLevel.IMMEDIATE)
    try:
        (parsed,) = parser.parse_into(exp.Condition, found, text)
    except ParseError as error:
        raise _unreadable(error, found, text) from None
    if parsed is None:
        raise refused(0, "there is no condition", FORM)
    return parsed


def _unreadable(error: ParseError, found: list[Token], text: str) -> InvalidArgument:
    at = error.errors[0].get("line"), error.errors[0].get("col")
    token = next((one for one in found if (one.line, one.col) == at), found[-1])
    if token is found[-1] and "Unexpected" not in str(error.errors[0].get("description")):
        return refused(token.end + 1, "it ends too early", FORM)
    return refused(token.start, f"{text[token.start : token.end + 1]!r} cannot stand here", FORM)


def shown(node: exp.Expr) -> str:
    """A field or a value for people; anything larger is not written out."""
    return node.sql()[:50] if isinstance(node, exp.Literal | exp.Column | exp.Boolean | exp.Null) else "this"


def start(node: exp.Expr) -> int:
    """The character at which a node begins, or, where sqlglot does not say, at which what it is a part of does."""
    places = [place for one in node.walk() if (place := one.meta.get("start")) is not None]
    return min(places) if places else start(node.parent) if node.parent is not None else 0
