"""The report in a real browser: what a reader does with mouse, keys and fingers."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import numpy as np
import pytest
from chromium import Browser
from PIL import Image
from report_pages import BLUE, RED, Folder

from hookscope.cli.app import run
from hookscope.models.labels import Labels
from hookscope.run.explaining.truth import truth_field
from hookscope.run.reporting import write_report

READY = "document.documentElement.dataset.ready === 'true'"
CARDS = "[...document.querySelectorAll('.card')]"
SHOWN = f"{CARDS}.map(card => card.querySelector('.line').textContent)"
OPEN = "document.getElementById('viewer').open"
LOADED = (
    "document.getElementById('top').complete && document.getElementById('top').naturalWidth > 0"
)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture
def three(folder: Folder) -> Folder:
    """Three photographs: two good maps, one that is degenerate, and a failure."""
    for name, fields in {
        "a.png": {"probability": 0.2, "class_name": "dog", "layer": "layer3"},
        "b.png": {"probability": 0.9, "class_name": "cat"},
        "c.png": {"probability": 0.4, "class_name": "cat", "status": "degenerate"},
    }.items():
        randomised = {"a.png": 0.1, "b.png": 0.95, "c.png": 0.3}[name]
        fields["evaluation"] = {"randomised_all": randomised, "randomised_head": 0.1}
        folder.heatmap(folder.photo(name), f"net_{name}", **fields)
    folder.failure(str(folder.photos / "d.png"), "d.png is no picture")
    return folder


def choose(browser: Browser, select: str, text: str) -> None:
    """Picks the option that begins with ``text``, as a user's click would."""
    browser(
        f"""(() => {{
            const select = document.getElementById({json.dumps(select)});
            const fits = (option) => option.text.startsWith({json.dumps(text)});
            select.value = [...select.options].find(fits).value;
            select.dispatchEvent(new Event("change", {{ bubbles: true }}));
        }})()"""
    )


def middle(browser: Browser) -> tuple[int, int, int]:
    """The colour in the middle of the stage, as the screen shows it."""
    x, y = browser.centre("#stage")
    return pixel(browser, round(x), round(y) - 40)


def pixel(browser: Browser, x: int, y: int) -> tuple[int, int, int]:
    red, green, blue = screen(browser)[y, x]
    return int(red), int(green), int(blue)


def screen(browser: Browser) -> np.ndarray:
    image = Image.open(io.BytesIO(browser.screenshot()))
    return np.asarray(image.convert("RGB"))


def near(one: tuple[int, ...], other: tuple[int, ...], by: int = 12) -> bool:
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= by


def test_filters_by_layer_class_status_and_text(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    assert browser(SHOWN) == ["a.png", "b.png", "c.png", ""]
    choose(browser, "facet-class", "cat")
    assert browser(SHOWN) == ["b.png", "c.png"]
    assert browser("document.getElementById('count').textContent") == "2 of 4"
    browser.click_on(".chip.degenerate")
    assert browser(SHOWN) == ["c.png"]
    browser.click_on("#clear")
    choose(browser, "facet-layer", "layer3")
    assert browser(SHOWN) == ["a.png"]
    browser.click_on("#clear")
    browser.press("/")
    browser.type("NO pict")
    assert browser(f"{CARDS}.map(card => card.querySelector('.name').textContent)") == ["d.png"]
    browser.type("zebra")
    assert browser(SHOWN) == []
    assert browser("document.getElementById('nothing').checkVisibility()")
    browser.click_on("#clear")
    choose(browser, "facet-trust", "do not read")
    assert browser(SHOWN) == ["b.png"]
    assert browser.complaints() == []


def test_sorts_by_any_number_with_the_unknown_last(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    choose(browser, "sort", "Probability")
    assert browser(SHOWN) == ["b.png", "c.png", "a.png", ""]
    browser.click_on("#direction")
    assert browser(SHOWN) == ["a.png", "c.png", "b.png", ""]
    choose(browser, "sort", "Like the map of random weights")
    assert browser(SHOWN) == ["b.png", "c.png", "a.png", ""]
    told = browser(f"{CARDS}.map(card => card.querySelector('.told')?.textContent ?? null)")
    assert told == ["0.9500", "0.3000", "0.1000", None]


def test_mistakes_come_first_and_can_be_chosen(browser: Browser, folder: Folder) -> None:
    labels = Labels(("cat", "dog", "crane"))
    # A mistake comes with two maps: of the class that was predicted, and of the true one.
    for name, true, predicted, mapped in (
        ("a.png", 0, 0, (0,)),
        ("b.png", 1, 0, (0, 1)),
        ("c.png", 2, 2, (2,)),
        ("d.png", 0, 2, (2, 0)),
    ):
        image, truth = folder.photo(name), truth_field(true, predicted, labels)
        for index in mapped:
            found = {"class_index": index, "class_name": labels.name(index), "truth": truth}
            folder.heatmap(image, f"net_{index}_{name}", **found)
    folder.heatmap(folder.photo("e.png"), "net_e.png")
    browser.open(folder.report(), READY)
    mistakes, right = ["b.png", "b.png", "d.png", "d.png"], ["a.png", "c.png"]
    assert browser(SHOWN) == [*mistakes, *right, "e.png"]
    badges = f"{CARDS}.map(card => card.querySelector('.badge')?.textContent ?? '')"
    assert browser(badges) == ["wrong"] * 4 + [""] * 3
    choose(browser, "facet-truth", "right")
    assert browser(SHOWN) == right
    choose(browser, "facet-truth", "wrong")
    assert browser(SHOWN) == mistakes
    names = f"{CARDS}.map(card => card.querySelector('.name').textContent)"
    assert browser(names) == ["cat", "dog", "crane", "cat"]
    browser.click_on(".card")
    browser.wait(OPEN)
    said = browser("document.getElementById('verdicts').textContent")
    assert "The network says cat; the true class is dog." in said
    facts = browser(
        "Object.fromEntries([...document.querySelectorAll('#facts dt')]"
        ".map(title => [title.textContent, title.nextSibling.textContent]))"
    )
    assert (facts["True class"], facts["Predicted class"]) == ("dog", "cat")
    siblings = "[...document.querySelectorAll('.sibling')].map(one => one.textContent)"
    assert browser(siblings) == ["cat", "dog"]
    assert browser.complaints() == []


def test_the_slider_fades_between_original_and_overlay(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    browser.click_on(".card")
    browser.wait(f"{OPEN} && {LOADED} && document.getElementById('base').naturalWidth > 0")
    browser.wait("getComputedStyle(document.getElementById('top')).opacity === '1'")
    assert near(middle(browser), RED)
    x, y = browser.centre("#opacity")
    width = browser("document.getElementById('opacity').clientWidth")
    browser.drag((x + width / 2 - 8, y), (x, y))
    half = tuple((a + b) // 2 for a, b in zip(RED, BLUE, strict=True))
    assert near(middle(browser), half)
    browser.drag((x, y), (x - width / 2 - 20, y))
    assert near(middle(browser), BLUE)
    # The drag leaves the arrow keys to the pictures, and the next one fades alike.
    browser.press("ArrowRight")
    assert browser("location.hash") == "#1"
    assert near(middle(browser), BLUE)
    browser.press("ArrowUp", 10)
    assert near(middle(browser), RED)
    browser.press("o")
    assert near(middle(browser), BLUE)


def test_the_keyboard_alone_leafs_through(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    browser.press("ArrowDown")
    browser.press("ArrowRight")
    browser.press("Enter")
    browser.wait(OPEN)
    headline = "document.getElementById('headline').textContent"
    assert browser("document.getElementById('place').textContent") == "2 / 4"
    browser.press("ArrowRight")
    assert browser("document.getElementById('place').textContent") == "3 / 4"
    browser.press("End")
    assert browser(headline) == "d.png"
    assert "is no picture" in browser("document.getElementById('missing').textContent")
    browser.press("ArrowRight")
    assert browser(headline) == "d.png"
    browser.press("Home")
    assert browser(headline) == "dog"
    browser.press("ArrowLeft")
    assert browser(headline) == "dog"
    browser.press("Escape")
    browser.wait(f"!{OPEN}")
    assert browser("document.activeElement.querySelector('.line').textContent") == "a.png"
    assert browser("location.hash") == ""
    assert browser.complaints() == []


def test_the_way_back_closes_the_viewer(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    browser.click_on(".card")
    browser.wait(OPEN)
    browser.press("ArrowRight")
    browser("history.back()")
    browser.wait(f"!{OPEN}")
    assert browser("document.activeElement.querySelector('.line').textContent") == "b.png"


def test_leafing_follows_filter_and_order(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    choose(browser, "facet-class", "cat")
    choose(browser, "sort", "Probability")
    browser.click_on("#direction")
    browser.click_on(".card")
    browser.wait(OPEN)
    assert browser("document.getElementById('subline').textContent").startswith("40")
    browser.press("ArrowRight")
    assert browser("document.getElementById('subline').textContent").startswith("90")
    assert browser("document.getElementById('on').disabled")


def test_a_map_that_ignores_the_weights_is_said_to(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    badges = (
        f"{CARDS}.map(card => [...card.querySelectorAll('.badge')].map(one => one.textContent))"
    )
    assert browser(badges) == [[], ["do not read"], ["degenerate"], ["error"]]
    browser("location.hash = '#1'")
    browser.wait(OPEN)
    said = browser("document.getElementById('verdicts').textContent")
    assert "hardly changes when the network's weights are scrambled: do not read it" in said


HOSTILE = (
    "<img src=x onerror=window.pwned=1>.png",
    '"><script>window.pwned=1<',
    "javascript:window.pwned=1.png",
    "a?b#c%20d%2e.png",
    "line\nbreak\ttab.png",
    "</script><script>window.pwned=1",
    "it's {{ 7*7 }} ${pwned} &lt;b&gt;.png",
    "\u202egnp.exe 猫 \U0001f408.png",
    os.fsdecode(b"not-\xff-utf8.png"),
)


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_hostile_names_are_text_and_their_links_lead_to_them(
    browser: Browser, folder: Folder, number: int
) -> None:
    name = HOSTILE[number].replace("/", "\N{FRACTION SLASH}")
    image = folder.photo(name)
    evil = '"><img src=x onerror=window.pwned=1></script><script>window.pwned=1</script>'
    # Names of our own are sanitised; those of folders keep nearly everything.
    folder.heatmap(image, f"{name}/ove:rlay #1?.png", class_name=evil, layer=evil, reason=evil)
    folder.failure(image, evil)
    browser.open(folder.report(), READY)
    browser.wait("document.querySelector('.card img')?.naturalWidth > 0")
    assert browser("document.querySelector('.card .name').textContent") == evil
    browser.click_on(".card")
    browser.wait(f"{OPEN} && {LOADED} && document.getElementById('base').naturalWidth > 0")
    browser.wait("getComputedStyle(document.getElementById('top')).opacity === '1'")
    assert near(middle(browser), RED)
    browser.press("o")
    assert near(middle(browser), BLUE)
    links = browser("[...document.querySelectorAll('#links a')].map(link => link.protocol)")
    assert links == ["file:", "file:"]
    assert browser("typeof window.pwned") == "undefined"
    assert browser("document.querySelectorAll('script').length") == 3
    assert browser("document.querySelectorAll('[onerror], [onload], [onclick]').length") == 0
    assert browser.complaints() == []


def test_a_script_that_slipped_in_would_not_run(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    browser(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.pwned=1>');"
        "document.body.append(Object.assign(document.createElement('script'), "
        "{textContent: 'window.pwned = 1'}))"
    )
    browser.wait("document.querySelector('body > img').complete")
    assert browser("typeof window.pwned") == "undefined"


def test_five_thousand_records_within_two_seconds(browser: Browser, folder: Folder) -> None:
    image = folder.photo("cat.png")
    folder.heatmap(image, "template.png")
    folder.report()
    line = json.loads((folder.out / "manifest.jsonl").read_text())
    lines = []
    for number in range(5000):
        name = f"net_layer4_{number}_gradcam.png"
        os.link(folder.out / "template.png", folder.out / name)
        fields = {"files": {"overlay": name}, "probability": number / 5000}
        fields["image"] = f"../photos/{number}.png"
        lines.append(json.dumps({**line, **fields}))
    (folder.out / "manifest.jsonl").write_text("\n".join(lines) + "\n")
    page = write_report(folder.out)
    # Whatever else this machine does is not the page's fault: it may try again.
    first_picture = "document.querySelector('.card img')?.naturalWidth > 0"
    assert any(browser.open(page, f"{READY} && {first_picture}") < 2 for _ in range(5))
    assert browser("document.getElementById('count').textContent") == "5,000"
    assert browser(f"{CARDS}.length") < 100
    assert browser("performance.getEntriesByType('resource').length") < 100
    browser("scrollTo(0, document.body.scrollHeight)")
    browser.wait(f"{SHOWN}.at(-1) === '4999.png'")
    assert browser(f"{CARDS}.length") < 100

    def seconds(script: str) -> float:
        timed = f"(() => {{const start = performance.now(); {script}; gallery.box.offsetHeight;"
        return browser(f"{timed} return performance.now() - start}})()") / 1000

    search = "filters.search.value = {}; filters.search.dispatchEvent(new Event('input'))"
    assert seconds(search.format("'/123'")) < 2
    assert browser("document.getElementById('count').textContent") == "11 of 5,000"
    assert seconds(search.format("''")) < 2
    sort = (
        "filters.sort.value = 'number probability'; filters.sort.dispatchEvent(new Event('change'))"
    )
    assert seconds(sort) < 2
    assert browser(f"{SHOWN}[0]") == "4999.png"


def test_dark_and_light(browser: Browser, three: Folder) -> None:
    browser.open(three.report(), READY)
    assert min(pixel(browser, 5, 5)) > 200
    browser.prefer("dark")
    browser.wait("document.documentElement.dataset.theme === 'dark'")
    assert max(pixel(browser, 5, 5)) < 60
    browser.click_on("#theme")
    assert min(pixel(browser, 5, 5)) > 200
    browser.open(three.out / "index.html", READY)
    assert min(pixel(browser, 5, 5)) > 200, "the choice is kept"
    browser("localStorage.clear()")


def test_a_phone(browser: Browser, three: Folder) -> None:
    browser.resize(360, 740, phone=True)
    browser.open(three.report(), READY)
    fits = "document.documentElement.scrollWidth <= innerWidth"
    assert browser("innerWidth") == 360
    assert browser(fits)
    lefts = browser(f"new Set({CARDS}.map(card => card.offsetLeft)).size")
    assert lefts == 2
    assert not browser("document.getElementById('sort').checkVisibility()")
    browser.click_on("#more")
    assert browser("document.getElementById('sort').checkVisibility()")
    assert browser(fits)
    choose(browser, "facet-class", "cat")
    browser.click_on("#more")
    browser.click_on(".card")
    browser.wait(f"{OPEN} && {LOADED}")
    assert browser("document.getElementById('viewer').scrollWidth") <= 360
    assert browser("document.getElementById('place').textContent") == "1 / 2"
    x, y = browser.centre("#stage")
    browser.swipe((x + 90, y), (x - 90, y + 5))
    assert browser("document.getElementById('place').textContent") == "2 / 2"
    browser.swipe((x - 90, y), (x + 90, y))
    assert browser("document.getElementById('place').textContent") == "1 / 2"
    browser.click_on("#close")
    browser.wait(f"!{OPEN}")


def test_pictures_that_are_gone(browser: Browser, three: Folder) -> None:
    page = three.report()
    (three.photos / "a.png").unlink()
    (three.out / "net_b.png").unlink()
    browser.open(page, READY)
    browser.wait("document.querySelector('.card .words')?.textContent.includes('not there')")
    browser("location.hash = '#0'")
    browser.wait(f"{OPEN} && document.getElementById('slider').hidden")
    browser.wait("getComputedStyle(document.getElementById('top')).opacity === '1'")
    assert near(middle(browser), RED)
    browser.press("ArrowRight")
    browser.wait("document.getElementById('missing').textContent.includes('not there')")


def test_an_empty_folder_says_so(browser: Browser, tmp_path: Path) -> None:
    browser.open(write_report(tmp_path), READY)
    assert "no results" in browser("document.getElementById('nothing').textContent")
    assert browser.complaints() == []


NETWORK = """
import torch
from torch import nn

def net():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, stride=4, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(12, 5),
    )
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, chelsea: Path) -> Path:
    """A folder that the commands themselves have made: grids of top channels, and overlays."""
    home = tmp_path_factory.mktemp("made")
    (home / "nets.py").write_text(NETWORK)
    common = [str(chelsea), "-m", f"{home}/nets.py:net", "--out", str(home / "out"), "--report"]
    assert run(["capture", *common, "-l", "0", "--top", "7", "-q"]) == 0
    assert run(["gradcam", *common, "-l", "1", "-q"]) == 0
    return home / "out"


def test_a_click_on_a_channel_shows_it_large(browser: Browser, made: Path) -> None:
    browser.open(made / "index.html", READY)
    assert browser(f"{CARDS}.length") == 2
    grid = browser("entries.find((entry) => entry.record.command === 'capture').id")
    browser(f"location.hash = '#{grid}'")
    browser.wait(f"{OPEN} && {LOADED}")
    # Where tile number 4 lies on the screen, from the picture's own numbers.
    tiles = browser(f"entries[{grid}].tiles.grid")
    row, column = divmod(4, tiles["cols"])
    top = tiles["top"] + row * tiles["cell"][0] + tiles["caption"]
    left = tiles["left"] + column * tiles["cell"][1]
    height, width = tiles["tile"]
    box = browser(
        "(() => {const top = document.getElementById('top'), b = top.getBoundingClientRect();"
        "return [b.x, b.y, b.width, b.height, top.naturalWidth, top.naturalHeight]})()"
    )
    scale = min(box[2] / box[4], box[3] / box[5])
    x = box[0] + (box[2] - scale * box[4]) / 2 + scale * (left + width / 2)
    y = box[1] + (box[3] - scale * box[5]) / 2 + scale * (top + height / 2)
    browser.move(x, y)
    name = tiles["channels"][4]
    assert browser("document.getElementById('outline').textContent") == name
    browser.click(x, y)
    browser.wait("!document.getElementById('channel').hidden")
    assert f"Channel {name} " in browser("document.getElementById('legend').textContent")

    with Image.open(next(made.glob("*_0_chelsea.png"))) as picture:
        tile = picture.convert("RGB").crop((left, top, left + width, top + height))
    box = browser(
        "(() => {const b = document.getElementById('channel').getBoundingClientRect();"
        "return [b.x, b.y, b.width, b.height]})()"
    )
    scale = min(box[2] / width, box[3] / height)
    assert scale * height > 400, "large"
    xs = box[0] + (box[2] - scale * width) / 2 + scale * (np.arange(2, width - 2) + 0.5)
    ys = box[1] + (box[3] - scale * height) / 2 + scale * (np.arange(2, height - 2) + 0.5)
    xs, ys = xs.astype(int), ys.astype(int)
    ys = ys[ys < box[1] + box[3] - 60]  # above the legend
    seen = screen(browser)[np.ix_(ys, xs)].astype(int)
    wanted = np.asarray(tile).astype(int)[2 : 2 + len(ys), 2 : width - 2]
    assert np.median(np.abs(seen - wanted)) <= 2
    assert np.mean(np.abs(seen - wanted)) < 12

    browser.press("ArrowRight")
    assert f"Channel {tiles['channels'][5]} " in browser(
        "document.getElementById('legend').textContent"
    )
    assert browser("location.hash") == f"#{grid}", "the arrows leaf through the channels"
    browser.press("Escape")
    assert browser(f"document.getElementById('channel').hidden && {OPEN}")
    browser.press("Escape")
    browser.wait(f"!{OPEN}")
    assert browser.complaints() == []


def test_results_of_one_picture_stand_together(browser: Browser, made: Path) -> None:
    browser.open(made / "index.html", READY)
    browser.click_on(".card")
    browser.wait(OPEN)
    first = browser("location.hash")
    assert browser("document.querySelectorAll('.sibling').length") == 2
    browser.click_on(".sibling:not([aria-current])")
    second = browser("location.hash")
    assert second != first
    browser.press("ArrowLeft")
    browser.press("ArrowRight")
    browser.press("ArrowLeft" if second == "#1" else "ArrowRight")
    assert browser("location.hash") == first


@pytest.mark.parametrize("size", [(1280, 800), (360, 740)])
def test_everything_has_a_name_for_a_screen_reader(
    browser: Browser, three: Folder, size: tuple[int, int]
) -> None:
    browser.resize(*size)
    browser.open(three.report(), READY)
    browser("location.hash = '#1'")
    browser.wait(OPEN)
    tree = browser.send("Accessibility.getFullAXTree")["nodes"]
    roles = {"button", "link", "textbox", "searchbox", "combobox", "slider"}
    nameless = [
        node
        for node in tree
        if node.get("role", {}).get("value") in roles and not node.get("name", {}).get("value")
    ]
    assert nameless == []
