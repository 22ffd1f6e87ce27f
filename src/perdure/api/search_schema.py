"""What the REST interface takes and shows of searches."""

from __future__ import annotations

import msgspec


class Count(msgspec.Struct):
    """How many pass; there may be more where `at_least` is true."""

    count: int
    at_least: bool


class SearchAttributeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`type` is Keyword, Int, Double, Bool, Datetime, KeywordList or Text."""

    name: str
    type: str


class SearchAttributeDocument(msgspec.Struct):
    name: str
    type: str


class SearchAttributeList(msgspec.Struct):
    """By name."""

    search_attributes: list[SearchAttributeDocument]


class SearchAttributeRemoved(msgspec.Struct):
    name: str
