"use strict";

// Colours: as the system says, light, or dark. A file from disk may have no storage.
const themes = ["system", "light", "dark"];
const button = document.getElementById("theme");
const store = {
  get: () => { try { return localStorage.getItem("specfw-theme"); } catch { return null; } },
  set: (value) => { try { localStorage.setItem("specfw-theme", value); } catch { /* it lasts for this visit */ } },
};
function paint(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = `Colours: ${theme}`;
}
let theme = themes.includes(store.get()) ? store.get() : "system";
paint(theme);
button.hidden = false;
button.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  store.set(theme);
  paint(theme);
});

// The table: sorted by its headings, filtered by a word and by choices.
const table = document.getElementById("table");
if (table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  const words = new Intl.Collator("en", { numeric: true });
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v ?? cell.textContent;
  };
  const compare = (numeric, a, b) => (numeric ? a - b : words.compare(a, b));
  const missing = (text) => text === "–" || text === "";
  headings.forEach((heading, column) => {
    heading.querySelector("button").addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      const keys = new Map(rows.map((row) => [row, value(row, column)]));
      const numeric = [...keys.values()].every((text) => missing(text) || !Number.isNaN(Number(text)));
      rows.sort((one, other) => {
        const [a, b] = [keys.get(one), keys.get(other)];
        if (missing(a) || missing(b)) return missing(a) - missing(b);
        return (down ? -1 : 1) * compare(numeric, a, b);
      });
      body.append(...rows);
      headings.forEach((each) => each.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    });
  });

  const form = document.getElementById("filters");
  if (form) {
    const search = document.getElementById("search");
    const count = document.getElementById("count");
    const texts = new Map(rows.map((row) => [row, [...row.cells].map((cell) => cell.textContent).join("\n").toLowerCase()]));
    const choices = [...form.querySelectorAll("select")].map((select) => ({
      select, column: headings.findIndex((heading) => heading.dataset.name === select.dataset.filter),
    }));
    const fitting = (cell, select) => !select.selectedIndex || cell.textContent === select.selectedOptions[0].textContent;
    const filter = () => {
      const wanted = search.value.trim().toLowerCase();
      let left = 0;
      for (const row of rows) {
        const fits = choices.every(({ select, column }) => fitting(row.cells[column], select));
        row.hidden = !(fits && texts.get(row).includes(wanted));
        left += !row.hidden;
      }
      count.textContent = left === rows.length ? `${rows.length} runs` : `${left} of ${rows.length} runs`;
    };
    form.hidden = false;
    form.addEventListener("input", filter);
    form.addEventListener("change", filter);
    form.addEventListener("submit", (event) => event.preventDefault());
    addEventListener("pageshow", filter); // a browser that comes back fills the form again, and says nothing
    // a form is emptied after its "reset" event: emptied here, so that a click is over when the rows are back
    form.querySelector('[type="reset"]').addEventListener("click", (event) => {
      event.preventDefault();
      form.reset();
      filter();
    });
  }
}

// What hovering, a tap or the arrow keys tell: of a mark its words, of a token its probabilities.
const tip = document.getElementById("tip");
const origins = {
  a: "accepted draft token", c: "recovered, in place of a rejected draft token",
  b: "bonus, after a block that stands whole", n: "plain, nothing was drafted",
};
let current = null;

function add(parent, name, text) {
  const element = document.createElement(name);
  element.textContent = text;
  parent.append(element);
  return element;
}
function tellToken(token) {
  const [position, round, id, p, q] = token.dataset.t.split(" ");
  const kind = Object.keys(origins).find((name) => token.classList.contains(name));
  add(add(tip, "b", ""), "code", `"${token.textContent.replaceAll("\n", "")}"`);
  add(tip, "span", origins[kind]);
  const list = add(tip, "dl", "");
  const facts = [["p (target)", p], ["q (drafter)", q]];
  if (p !== "-" && q !== "-" && q > 0) facts.push(["p / q", (p / q).toPrecision(3)]);
  for (const [name, text] of facts) {
    add(list, "dt", name);
    add(list, "dd", text === "-" ? "none" : text);
  }
  add(tip, "small", `position ${position} · round ${round} · id ${id}`);
}
function hide() {
  current?.classList.remove("on");
  current?.removeAttribute("aria-describedby");
  current = null;
  tip.hidden = true;
}
function show(item) {
  if (item === current) return;
  hide();
  current = item;
  item.classList.add("on");
  item.setAttribute("aria-describedby", "tip");
  tip.replaceChildren();
  if (item.dataset.t) tellToken(item);
  else tip.textContent = item.getAttribute("aria-label");
  tip.hidden = false;
  place(where(item));
}
// a token that breaks over lines is told of at its first
function where(item) {
  return item.dataset.t ? item.getClientRects()[0] : item.getBoundingClientRect();
}
function place(at) {
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - width / 2), innerWidth - width - 8);
  const above = at.top - height - 10;
  tip.style.transform = `translate(${Math.max(8, left)}px, ${above >= 8 ? above : at.bottom + 10}px)`;
}
function nearest(marks, x, y) {
  let best = null;
  let least = 28;
  for (const mark of marks) {
    const box = mark.getBoundingClientRect();
    const away = Math.hypot(Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom));
    const middle = Math.hypot(box.left + box.width / 2 - x, box.top + box.height / 2 - y) / 1000;
    if (away + middle < least) [best, least] = [mark, away + middle];
  }
  return best;
}
for (const host of document.querySelectorAll("[data-tips]")) {
  const items = [...host.querySelectorAll("[data-t], .mark")];
  if (!items.length) continue;
  const tokens = items[0].dataset.t !== undefined;
  const under = (event) => (tokens ? event.target.closest("[data-t]") : nearest(items, event.clientX, event.clientY));
  const point = (event) => { const item = under(event); item ? show(item) : hide(); };
  host.addEventListener("pointermove", point);
  host.addEventListener("pointerdown", point);
  host.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  host.addEventListener("keydown", (event) => {
    const at = items.indexOf(current);
    const moves = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    const next = items[Math.min(Math.max(moves[event.key], 0), items.length - 1)];
    hide();
    next.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(next);
  });
  host.addEventListener("blur", hide);
}
const follow = () => { if (current) place(where(current)); };
document.addEventListener("scroll", follow, { passive: true, capture: true });
addEventListener("resize", follow);
