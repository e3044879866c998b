from __future__ import annotations

import contextlib
import operator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qunlearn.data.rules import parse_rule
from qunlearn.errors import UserError

ROW = {"user": "42", "name": "Ann Lee", "date": "2024-05-01", "score": "-1.5", "empty": ""}


@pytest.mark.parametrize(
    ("rule", "truth"),
    [
        ("user == 42", True),
        ("user==42.0", True),
        ("user == '42'", True),
        ("user == '42.0'", False),
        ("user < 5", False),  # as text it would be true
        ("user > 5", True),
        ("user != 42", False),
        ("name == 'Ann Lee'", True),
        ('name == "Ann Lee"', True),
        ("name == Ann", False),
        ("name == 7", False),
        ("name < 7", False),
        ("name != 7", True),
        ("date < 2024-06-01", True),
        ("date >= 2024-05-02", False),
        ("score < -1", True),
        ("score <= -1.5e0", True),
        ("user in [41, 42]", True),
        ("user in [41, '43']", False),
        ("name in ['Ann Lee', Bob]", True),
        ("empty == ''", True),
        ("empty != ''", False),
        ("empty != 3", False),
        ("empty != x", False),
        ("empty < 3", False),
        ("'user' == 42", True),
        ("user == 1 and user == 2 or user == 42", True),
        ("user == 42 or user == 1 and user == 2", True),
        ("(user == 42 or user == 1) and user == 2", False),
        ("((user == 42))", True),
    ],
)
def test_meaning(rule, truth):
    assert parse_rule(rule).matches(ROW) is truth


def test_columns():
    rule = parse_rule("a == 1 and (b in [c] or d != e)")
    assert rule.columns() == {"a", "b", "d"}


def test_account_numbers_are_exact():
    rule = parse_rule("user == 9007199254740993")
    assert rule.matches({"user": "9007199254740993"})
    assert not rule.matches({"user": "9007199254740992"})


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "   ",
        "user",
        "user ==",
        "== 3",
        "user = 3",
        "user == 3 and",
        "user == 3 user == 4",
        "user == 3 4",
        "(user == 3",
        "user == 3)",
        "user in 3",
        "user in []",
        "user in [3",
        "user in [3,]",
        "user == and",
        "user == 'open",
        "user === 3",
        "__import__('os').system('x')",
        "(" * 5000 + "user == 3" + ")" * 5000,
    ],
)
def test_what_cannot_be_read_is_refused(rule):
    with pytest.raises(UserError, match="The rule"):
        parse_rule(rule)


def test_the_message_says_where_and_what():
    with pytest.raises(UserError, match=r"position 10, a value is expected but there is '\)'"):
        parse_rule("(user == )")
    with pytest.raises(UserError, match="equality is written =="):
        parse_rule("user = 3")
    for rule in ("user == anna@x.org anna@x.org", "user = anna@x.org", "user == 'anna@x.org"):
        with pytest.raises(UserError) as told:  # logs keep what is printed
            parse_rule(rule)
        assert "anna" not in str(told.value)


SIGNS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le}


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(sorted(SIGNS)), st.integers(-3, 3)),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.tuples(st.integers(-3, 3), st.integers(-3, 3)),
)
def test_agrees_with_python_on_chains(comparisons, joints, values):
    cells = dict(zip("ab", values, strict=True))
    text, groups = "", [[]]
    for (column, sign, value), joint in zip(comparisons, [None, *joints], strict=False):
        text += {None: "", True: " and ", False: " or "}[joint] + f"{column} {sign} {value}"
        if joint is False:
            groups.append([])
        groups[-1].append(SIGNS[sign](cells[column], value))
    truth = any(all(group) for group in groups)
    assert parse_rule(text).matches({name: str(cell) for name, cell in cells.items()}) is truth


@given(st.text(alphabet="ab ()[],=!<>'\"and or in 1.5", max_size=40))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(UserError):
        parse_rule(text).columns()
