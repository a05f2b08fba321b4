"""What can stand in a header."""

from __future__ import annotations

import pytest

from posthouse.errors import InvalidEmail
from posthouse.header import content_type


@pytest.mark.parametrize(
    "given", ['text/x; title="Grüße"', 'text/x; title="a\\"b"', "text/x; title=ü", "text", "Übel/x"]
)
def test_a_content_type_that_would_need_encoding_is_refused(given: str) -> None:
    with pytest.raises(InvalidEmail, match="is not a content type"):
        content_type(given, "attachments[0].content_type", frozenset())


def test_a_content_type_keeps_its_parameters() -> None:
    given = 'Text/CSV ;header=present; title="a b, c"'
    assert content_type(given, "attachments[0].content_type", frozenset()) == 'text/csv; header=present; title="a b, c"'
