"""The page is one file, whatever the records say is text in it, and every link leads home."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections import Counter
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookscope.render import report as module
from hookscope.render.report import Entry, link, report
from hookscope.render.verdicts import trust, verdicts

RECORD = {
    "command": "gradcam",
    "status": "ok",
    "image": "../photos/cat.png",
    "layer": "layer4",
    "model": "resnet18",
    "weights": "DEFAULT",
    "preprocess": {"resize": 256},
    "files": {"overlay": "resnet18_layer4_cat.png"},
    "class_name": "cat",
    "probability": 0.5,
    "score": None,
}
EVIL = "\"'><img src=x onerror=alert(1)></script></style><!--{{ 7*7 }}{% raw %}&lt;\u2028"


class Page(HTMLParser):
    """The elements of a page, the text of its scripts, and what it points to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.targets: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.meta: dict[str, str] = {}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._inside = tag
        values = dict(attrs)
        self.targets += [values[name] or "" for name in ("src", "href") if name in values]
        if tag == "meta":
            key = values.get("name") or values.get("http-equiv") or ""
            self.meta[key] = values.get("content") or ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        if self._inside == "style":
            self.styles.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[1])


def page(*records: dict[str, Any], title: str = "out") -> Page:
    return Page(report([Entry(record) for record in records], title=title))


def test_one_file_without_anything_from_elsewhere() -> None:
    found = page(RECORD)
    assert [target for target in found.targets if not target.startswith("data:")] == []
    own = "".join(found.scripts[:1] + found.scripts[2:] + found.styles)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", own)
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", own)


def test_the_policy_allows_these_scripts_and_this_style_alone() -> None:
    found = page(RECORD)
    policy = dict(part.split(" ", 1) for part in found.meta["Content-Security-Policy"].split("; "))

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy["default-src"] == "'none'"
    assert policy["script-src"].split() == [digest(found.scripts[0]), digest(found.scripts[2])]
    assert policy["style-src"].split() == [digest(text) for text in found.styles]


def test_whatever_a_record_says_is_no_markup() -> None:
    evil = {key: EVIL if isinstance(value, str) else value for key, value in RECORD.items()}
    evil.update(files={EVIL: EVIL}, preprocess={EVIL: EVIL}, evaluation={EVIL: 1}, more=[EVIL])
    found = page(evil, title=EVIL)
    assert found.tags == page(RECORD).tags
    assert found.data["entries"][0]["record"]["class_name"] == EVIL
    assert found.data["common"] == [{EVIL: EVIL}]


def test_the_page_holds_the_records_and_shares_what_they_share() -> None:
    found = page(*[{**RECORD, "score": float(number)} for number in range(50)]).data
    assert [entry["record"]["score"] for entry in found["entries"]] == list(range(50))
    assert found["common"] == [{"resize": 256}]
    first = found["entries"][0]
    assert first["files"] == {"overlay": ["resnet18_layer4_cat.png"]}
    assert "schema" not in first["record"]


def test_numbers_that_are_not_finite_are_unknown() -> None:
    text = report([Entry({**RECORD, "score": float("nan"), "max": float("inf")})], title="x")
    record = Page(text).data["entries"][0]["record"]
    assert record["score"] is record["max"] is None


def test_the_same_records_make_the_same_page() -> None:
    assert report([Entry(RECORD)], title="x") == report([Entry(dict(RECORD))], title="x")


def test_the_summary_counts() -> None:
    text = report([Entry({**RECORD, "layer": str(n)}) for n in range(1200)], title="x")
    assert "1,200 results" in text
    assert "1 picture<" in text
    assert "resnet18 DEFAULT" in text


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(names)
def test_a_link_is_a_path_and_nothing_else(name: str) -> None:
    name = name.lstrip("/") or "x"
    parts = urlsplit(link(name))
    assert (parts.scheme, parts.netloc, parts.query, parts.fragment) == ("", "", "", "")
    assert unquote(parts.path).removeprefix("./") == name


def test_absolute_and_undecodable_paths() -> None:
    assert link("/data/my cat.png") == "file:///data/my%20cat.png"
    assert link("//host/x.png") == "file:///host/x.png"
    assert link("javascript:alert(1)") == "./javascript%3Aalert%281%29"
    assert link(os.fsdecode(b"\xff.png")) == "./%FF.png"
    assert link("\ud800.png") == "./%3F.png"


def test_the_templates_are_in_the_wheel() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 brings it")
    root = Path(module.__file__).parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["hookscope"]
    files = list((root / "hookscope" / "render" / "templates").iterdir())
    assert len(files) > 5
    for file in files:
        name = file.relative_to(root / "hookscope").as_posix()
        assert any(fnmatch(name, pattern) for pattern in patterns), name


SOUND = {"randomised_all": 0.1, "randomised_head": 0.2, "deletion_auc": 0.1, "insertion_auc": 0.6}


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({}, "good", "changes when the network's weights are scrambled, as it should"),
        ({"randomised_all": 0.93}, "bad", "do not read it"),
        ({"randomised_head": 0.93}, "caution", "not why it chose this class"),
        ({"insertion_auc": 0.05}, "caution", "other places may matter more"),
        ({"randomised_all": 0.6}, "caution", "read it with care"),
        ({"randomised_all": -0.9}, "good", "as it should"),
    ],
)
def test_what_the_numbers_mean(changes: dict[str, float], level: str, words: str) -> None:
    found = trust({**SOUND, **changes})
    assert found is not None
    assert found.level == level
    assert words in found.sentence


def test_right_and_wrong() -> None:
    def told(**truth: Any) -> tuple[str, str]:
        (found,) = verdicts({**RECORD, "truth": truth})
        return found.label, found.sentence

    names = {"class_name": "cat", "class_index": 3, "predicted_name": "dog", "predicted_index": 5}
    assert told(**names, correct=False) == (
        "wrong",
        "The network says dog; the true class is cat.",
    )
    assert told(correct=True, class_index=3) == ("right", "The network is right: class 3.")
    assert told(correct=False, class_index=3)[1] == (
        "The network says another class; the true class is class 3."
    )
    assert list(verdicts({**RECORD, "truth": {"class_name": "cat"}})) == []


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert trust(dict.fromkeys(SOUND)) is None
    assert trust({}) is None
    assert list(verdicts(RECORD)) == []
    assert list(verdicts({**RECORD, "evaluation": None})) == []
