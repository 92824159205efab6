"""The page of a study in headless Chromium: it opens from disk, sorts, filters, tells, fits a phone, and is inert."""

import shutil

from specfw.study import page
from specfw.study.gathering import gather

import pytest
from study_records import changed, hostile, many, recorded

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
pytestmark = pytest.mark.browser

PHONE, DESK = (360, 740), (1280, 900)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TEMPERATURES = (1.5, 0.5, 1.0)
NAME = "{0}/2026-11-30/13-09-22-826664/a folder of a name that is longer than there is room for it to be/run-{0}"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages by name: of one run, of a sweep, of a hostile record beside a right one, of a hundred runs."""
    folder = tmp_path_factory.mktemp("pages")
    record = recorded(folder / "one", "diagnostics.closed_forms.sorting=true")
    for number, (rule, value) in enumerate((rule, value) for rule in ("stochastic", "block") for value in TEMPERATURES):
        summary = {"rule": rule, "stops_at_rejection": rule != "block", "positions_tested": 29 + number}
        changed(
            record, folder / "sweep" / str(number), summary=summary, started={"config.sampler.temperature.value": value}
        )
    hostile(record, folder / "hostile" / "one")
    many(record, folder / "many", 100)
    for number, text in enumerate(("two  spaces", "", " one", "one")):
        changed(record, folder / "spaced" / str(number), started={"config.prompts.text": text, "config.x": number})
    for number in range(2):
        changed(record, folder / "deep" / NAME.format(number), summary={"seed": number})
    first = "diagnostics.closed_forms.first_position"
    for number in range(8):
        summary = {"rule": "lenient", "preserves_target": False, f"{first}.acceptance": 0.7 + number % 3 / 20}
        own = {"config.acceptance": {"name": "lenient", "lenience": number}}
        changed(record, folder / "lossy" / str(number), summary=summary | {f"{first}.sum_min": 0.6}, started=own)
    found = {}
    for name in ("one", "sweep", "hostile", "many", "spaced", "deep", "lossy"):
        found[name] = folder / f"{name}.html"
        found[name].write_text(page.html(gather([str(folder / name)])), encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture
def visit(chromium, pages):
    """Open a page at a size and under media features; nothing may be said on the console."""

    def opened(name, size=DESK, **features):
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        wishes = {"prefers_reduced_motion": "reduce", **features}
        media = [{"name": wish.replace("_", "-"), "value": value} for wish, value in wishes.items()]
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        chromium.get(pages[name].as_uri())
        return chromium

    yield opened
    assert chromium.get_log("browser") == []


def find(driver, selector):
    return driver.find_elements("css selector", selector)


def press(driver, *names):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    actions = ActionChains(driver)
    for name in names:
        actions.send_keys(getattr(Keys, name, name))
    actions.perform()


def hover(driver, element):
    from selenium.webdriver.common.action_chains import ActionChains

    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
    ActionChains(driver).move_to_element(element).perform()


def column(driver, name):
    """The texts of a column's visible cells."""
    script = """
      const table = document.getElementById("table");
      const at = [...table.tHead.rows[0].cells].findIndex((cell) => cell.dataset.name === arguments[0]);
      return [...table.tBodies[0].rows].filter((row) => !row.hidden).map((row) => row.cells[at].textContent);
    """
    return driver.execute_script(script, name)


def heading(driver, name):
    return find(driver, f'#table th[data-name="{name}"]')[0]


def tip(driver):
    (found,) = find(driver, "#tip")
    return found.text if found.is_displayed() else None


@pytest.mark.parametrize("name", ["one", "sweep", "hostile", "many"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_and_loads_nothing(visit, name, scheme):
    driver = visit(name, prefers_color_scheme=scheme)
    assert driver.title.endswith("specfw")
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert find(driver, "#theme")[0].is_displayed()


def test_a_click_sorts_by_value_and_another_turns_it_round(visit):
    driver = visit("sweep")
    before = column(driver, "tested")
    heading(driver, "temperature").find_element("css selector", "button").click()
    assert column(driver, "temperature") == ["0.5", "0.5", "1.0", "1.0", "1.5", "1.5"]
    assert heading(driver, "temperature").get_attribute("aria-sort") == "ascending"
    heading(driver, "tested").find_element("css selector", "button").click()
    assert column(driver, "tested") == sorted(before, key=int)
    assert heading(driver, "temperature").get_attribute("aria-sort") == "none"
    heading(driver, "tested").find_element("css selector", "button").click()
    assert column(driver, "tested") == sorted(before, key=int, reverse=True)
    assert heading(driver, "tested").get_attribute("aria-sort") == "descending"


def test_numbers_are_sorted_as_numbers(visit):
    driver = visit("many")
    heading(driver, "num_draft_tokens").find_element("css selector", "button").click()
    assert column(driver, "num_draft_tokens") == [str(2**power) for power in range(5) for _ in range(20)]


def test_the_keyboard_sorts(visit):
    driver = visit("sweep")
    button = heading(driver, "rule").find_element("css selector", "button")
    driver.execute_script("arguments[0].focus()", button)
    press(driver, "ENTER")
    assert column(driver, "rule") == ["block"] * 3 + ["stochastic"] * 3
    press(driver, "SPACE")
    assert column(driver, "rule") == ["stochastic"] * 3 + ["block"] * 3


def test_it_filters_by_word_and_by_choice_and_says_how_many_are_left(visit):
    from selenium.webdriver.support.select import Select

    driver = visit("sweep")
    Select(find(driver, 'select[data-filter="temperature"]')[0]).select_by_visible_text("0.5")
    assert column(driver, "temperature") == ["0.5", "0.5"]
    find(driver, "#search")[0].send_keys("BLOCK")
    assert column(driver, "rule") == ["block"]
    assert find(driver, "#count")[0].text == "1 of 6 runs"
    find(driver, 'button[type="reset"]')[0].click()
    assert len(column(driver, "rule")) == 6
    assert find(driver, "#count")[0].text == "6 runs"


@pytest.mark.parametrize("place", range(4))
def test_a_choice_is_the_value_with_its_spaces(visit, place):
    from selenium.webdriver.support.select import Select

    driver = visit("spaced")
    Select(find(driver, 'select[data-filter="text"]')[0]).select_by_index(place + 1)
    assert column(driver, "run") == [str(place)]


def test_a_search_does_not_run_on_from_cell_to_cell(visit):
    driver = visit("spaced")
    cells = [cell.text for cell in find(driver, "#table tbody tr:first-child > *")]
    find(driver, "#search")[0].send_keys(cells[0] + cells[1])
    assert column(driver, "run") == []


def test_a_browser_that_comes_back_shows_what_its_filters_say(visit):
    from selenium.webdriver.support.select import Select

    driver = visit("sweep")
    Select(find(driver, 'select[data-filter="temperature"]')[0]).select_by_visible_text("0.5")
    visit("one")
    driver.back()
    chosen = Select(find(driver, 'select[data-filter="temperature"]')[0]).first_selected_option.text
    assert chosen == "0.5"
    assert column(driver, "temperature") == ["0.5", "0.5"]
    assert find(driver, "#count")[0].text == "2 of 6 runs"


def test_hovering_a_mark_tells_its_numbers(visit):
    driver = visit("sweep")
    mark = find(driver, "#figure-acceptance .mark")[-1]  # the first ones are nearer to each other than a pixel
    hover(driver, mark)
    assert tip(driver) == mark.get_attribute("aria-label")
    assert "closed form 0.6" in tip(driver)
    hover(driver, find(driver, "h1")[0])
    assert tip(driver) is None


def test_names_of_marks_stand_apart(visit):
    driver = visit("lossy")
    script = """
      const letters = [...document.querySelectorAll("#figure-distortion svg text")];
      return letters.map((one) => [one.textContent, one.getBoundingClientRect().toJSON()]);
    """
    found = driver.execute_script(script)
    assert sum(text.startswith("lenience=") for text, _ in found) >= 3
    for place, (text, box) in enumerate(found):
        for other, there in found[:place]:
            across = box["left"] < there["right"] and there["left"] < box["right"]
            assert not (across and box["top"] < there["bottom"] and there["top"] < box["bottom"]), (text, other)


def test_arrow_keys_go_from_mark_to_mark(visit):
    driver = visit("sweep")
    picture = find(driver, "#figure-scoreboard .picture")[0]
    driver.execute_script("arguments[0].focus()", picture)
    told = []
    for _ in range(3):
        press(driver, "ARROW_RIGHT")
        told.append(tip(driver))
    assert len(set(told)) == 3
    press(driver, "ARROW_LEFT")
    assert tip(driver) == told[1]
    press(driver, "END")
    assert tip(driver) not in told
    press(driver, "ESCAPE")
    assert tip(driver) is None


def test_a_token_tells_where_it_came_from(visit, pages):
    driver = visit("one")
    for kind, words in (("a", "accepted draft token"), ("c", "recovered"), ("b", "bonus")):
        token = find(driver, f".passage .{kind}")[0]
        hover(driver, token)
        position, round_, id_, p, q = token.get_attribute("data-t").split()
        said = tip(driver).split("\n")
        assert said[1].startswith(words)
        assert said[2:6] == ["p (target)", p, "q (drafter)", "none" if q == "-" else q]
        assert said[-1] == f"position {position} · round {round_} · id {id_}"


def test_a_token_is_told_of_by_keyboard_and_by_tap(visit):
    driver = visit("one", PHONE)
    driver.execute_script("document.querySelector('.passage').focus()")
    press(driver, "ARROW_RIGHT", "ARROW_RIGHT")
    second = find(driver, ".passage .t")[1]
    assert f"position {second.get_attribute('data-t').split()[0]} " in tip(driver)
    assert second.get_attribute("aria-describedby") == "tip"
    press(driver, "ESCAPE")
    fifth = find(driver, ".passage .t")[4]
    driver.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", fifth)
    at = fifth.rect
    top = driver.execute_script("return scrollY")
    point = {"x": at["x"] + at["width"] / 2, "y": at["y"] - top + at["height"] / 2}
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [point]})
    driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    assert f"position {fifth.get_attribute('data-t').split()[0]} " in tip(driver)


def test_origins_differ_in_more_than_colour(visit):
    driver = visit("one")
    lines = {
        kind: find(driver, f".origins .{kind}")[0].value_of_css_property("text-decoration-style") for kind in "acb"
    }
    assert lines == {"a": "solid", "c": "wavy", "b": "double"}


def test_colours_follow_the_system_until_they_are_chosen(visit):
    def ground(driver):
        return driver.execute_script("return getComputedStyle(document.body).backgroundColor")

    driver = visit("one", prefers_color_scheme="light")
    light = ground(driver)
    driver = visit("one", prefers_color_scheme="dark")
    dark = ground(driver)
    assert light != dark
    button = find(driver, "#theme")[0]
    button.click()
    assert (button.text, ground(driver)) == ("Colours: light", light)
    button.click()
    assert (button.text, ground(driver)) == ("Colours: dark", dark)
    button.click()
    assert button.text == "Colours: system"


def test_letters_are_as_large_as_the_reader_sets_them(visit):
    driver = visit("sweep")
    size = (
        "const style = getComputedStyle(document.querySelector(arguments[0])); return parseFloat(style[arguments[1]])"
    )
    asked = [("body", "fontSize"), ("summary", "fontSize"), ("#table td", "fontSize"), ("#table td", "lineHeight")]
    before = [driver.execute_script(size, *one) for one in asked]
    driver.execute_script("document.documentElement.style.fontSize = '200%'")
    assert [driver.execute_script(size, *one) for one in asked] == pytest.approx([2 * one for one in before])


CHOSEN = "document.documentElement.dataset.theme = arguments[0]"


def test_paper_is_light_and_has_what_a_screen_scrolls_to(visit):
    driver = visit("sweep")
    driver.execute_script(CHOSEN, "dark")
    driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert driver.execute_script("return getComputedStyle(document.documentElement).colorScheme") == "light"
    cut = "return [...document.querySelectorAll('.scroll')].filter((box) => box.scrollHeight > box.clientHeight).length"
    assert driver.execute_script(cut) == 0
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


@pytest.mark.parametrize("chosen", ["light", "dark"])
def test_forced_colours_are_not_crossed_by_chosen_ones(visit, chosen):
    driver = visit("one", forced_colors="active", prefers_color_scheme="dark")
    script = "return getComputedStyle(document.querySelector('.origins .t')).color"
    asked = driver.execute_script(script)
    driver.execute_script(CHOSEN, chosen)
    assert driver.execute_script(script) == asked


@pytest.mark.parametrize("name", ["one", "sweep", "hostile", "many"])
def test_a_phone_needs_no_sideways_scrolling(visit, name):
    driver = visit(name, PHONE)
    driver.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert driver.execute_script("return document.documentElement.scrollWidth") == 360
    heights = "return [...document.querySelectorAll('svg text')].map((one) => one.getBoundingClientRect().height)"
    assert min(driver.execute_script(heights)) >= 10
    box = find(driver, "#table")[0].find_element("xpath", "..")
    assert driver.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_names_of_runs_are_cut_at_their_beginning_and_stay_whole_to_a_search(visit, size):
    driver = visit("deep", size)
    script = """
      const cell = document.querySelector("#table tbody th");
      const text = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT).nextNode();
      const range = document.createRange();
      const seen = (at) => {
        range.setStart(text, at);
        range.setEnd(text, at + 1);
        const [letter, box] = [range.getBoundingClientRect(), cell.getBoundingClientRect()];
        return letter.left >= box.left && letter.right <= box.right;
      };
      return [seen(0), seen(text.length - 1), cell.scrollWidth > cell.clientWidth];
    """
    assert driver.execute_script(script) == [False, True, True]
    assert column(driver, "run") == [NAME.format(number) for number in range(2)]
    find(driver, "#search")[0].send_keys(NAME.format(1))
    assert column(driver, "run") == [NAME.format(1)]


def test_the_first_stop_of_the_keyboard_skips_to_the_content(visit):
    driver = visit("sweep")
    press(driver, "TAB")
    skip = driver.switch_to.active_element
    assert skip.text == "Skip to the content"
    assert skip.value_of_css_property("outline-style") == "solid"
    press(driver, "ENTER")
    assert driver.switch_to.active_element.get_attribute("id") == "main"


@pytest.mark.parametrize("size", [PHONE, DESK])
def test_the_frame_of_a_text_is_apart_from_its_letters(visit, size):
    driver = visit("one", size)
    script = """
      const passage = document.querySelector(".passage");
      const text = document.createRange();
      text.selectNodeContents(passage);
      const [box, letters] = [passage.getBoundingClientRect(), text.getBoundingClientRect()];
      const card = passage.closest(".text").getBoundingClientRect();
      return [letters.left - box.left, box.right - letters.right, box.left - card.left, card.right - box.right];
    """
    assert min(driver.execute_script(script)) >= 5


def test_every_stop_of_the_keyboard_is_seen(visit):
    driver = visit("sweep")
    seen = set()
    for _ in range(60):
        press(driver, "TAB")
        stop = driver.switch_to.active_element
        if stop.tag_name == "body":
            break
        assert stop.value_of_css_property("outline-style") in ("solid", "auto"), stop.get_attribute("outerHTML")[:200]
        seen.add(stop.tag_name)
    assert {"a", "button", "summary", "select", "input", "div"} <= seen


@pytest.mark.parametrize(("wish", "behaviour"), [("reduce", "auto"), ("no-preference", "smooth")])
def test_motion_is_only_for_those_who_like_it(visit, wish, behaviour):
    driver = visit("one", prefers_reduced_motion=wish)
    script = "return getComputedStyle(document.documentElement).scrollBehavior"
    assert driver.execute_script(script) == behaviour


def test_a_hostile_record_does_nothing(visit):
    driver = visit("hostile")
    for element in find(driver, ".passage .t")[:2] + find(driver, ".mark")[:3]:
        hover(driver, element)
    assert driver.execute_script("return window.owned") is None
    assert driver.execute_script("return document.scripts.length") == 1
    assert "window.owned=1;alert(1)" in find(driver, "main")[0].text
    driver.execute_script("""
      const script = document.createElement("script");
      script.textContent = "window.owned = 3";
      document.body.append(script);
      const button = document.createElement("b");
      button.setAttribute("onclick", "window.owned = 4");
      document.body.append(button);
      button.click();
    """)
    assert driver.execute_script("return window.owned") is None
    assert all("Content Security Policy" in entry["message"] for entry in driver.get_log("browser"))
