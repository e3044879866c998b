from hypothesis import given
from hypothesis import strategies as st

from qunlearn.store import toml

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
plain = texts | st.integers(-(2**60), 2**60) | st.booleans() | st.floats(allow_nan=False)
values = plain | st.lists(plain, max_size=3)


@given(st.dictionaries(texts, values | st.dictionaries(texts, values, min_size=1, max_size=3)))
def test_what_is_written_is_read_back(settings):
    assert toml.loads(toml.dumps(settings)) == settings


def test_none_is_left_out():
    assert toml.loads(toml.dumps({"a": None, "b": 1, "c": {"d": None, "e": 2}})) == {
        "b": 1,
        "c": {"e": 2},
    }
