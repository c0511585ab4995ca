"""The bytes of a document are those that Python's own encoder would write."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfm_pipelines.catalog.documents import document_bytes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5))
def test_any_document_is_written_as_python_would(document: dict[str, Any]) -> None:
    expected = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)
    try:
        assert document_bytes(document) == f"{expected}\n".encode()
    except UnicodeEncodeError:
        with pytest.raises(UnicodeEncodeError):
            expected.encode()


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        document_bytes({"value": float("nan")})
