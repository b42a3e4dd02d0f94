"use strict";
// Sorting and filtering of tables, and words for marks. The page is whole without it.

function enhance(block) {
  const table = block.querySelector("table");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const step = Number(table.dataset.first);
  let limit = step;
  const chosen = new Map();
  const words = rows.map((row) => [...row.cells].map((cell) => cell.textContent.toLowerCase()).join(" ").replaceAll("\u00a0", " "));

  // Sorting: a button in each header; a number by its value, what is unknown last.
  const key = (row, column) => {
    const cell = row.cells[column];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent === "-" ? null : cell.textContent;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const keyed = [...body.rows].map((row) => [key(row, column), row]);
      keyed.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return down ? compare(b, a) : compare(a, b);
      });
      body.append(...keyed.map(([, row]) => row));
      show();
    });
  });

  // Filtering: words that must all occur, and a choice for each column of few different words.
  const kept = new Set(rows);
  const output = document.createElement("output");
  const more = document.createElement("button");
  more.type = "button";
  more.className = "more";
  const title = block.querySelector("h3").textContent;
  function show() {
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !kept.has(row) || shown >= limit;
      if (!row.hidden) shown += 1;
    }
    output.textContent = `${kept.size} of ${rows.length} rows`;
    more.hidden = shown >= kept.size;
    more.textContent = `Show all ${kept.size} rows`;
  }
  function filter(text) {
    const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
    kept.clear();
    rows.forEach((row, number) => {
      const fits = [...chosen].every(([column, value]) => !value || row.cells[column].textContent === value);
      if (fits && wanted.every((word) => words[number].includes(word))) kept.add(row);
    });
    limit = step;
    show();
  }
  if (rows.length > 5) {
    const tools = document.createElement("div");
    tools.className = "tools";
    const field = labelled("Filter", document.createElement("input"), title);
    field.type = "search";
    field.addEventListener("input", () => filter(field.value));
    tools.append(field.parentNode);
    heads.forEach((head, column) => {
      if (head.classList.contains("n")) return;
      const values = new Set(rows.map((row) => row.cells[column].textContent));
      if (values.size < 2 || values.size > 40 || values.size > rows.length / 2) return;
      const select = labelled(head.textContent, document.createElement("select"), title);
      select.append(new Option("all", ""), ...[...values].sort().map((value) => new Option(value)));
      select.addEventListener("change", () => {
        chosen.set(column, select.value);
        filter(field.value);
      });
      tools.append(select.parentNode);
    });
    tools.append(output);
    tools.append(columns(table));
    block.querySelector(".scroll").before(tools);
  } else block.querySelector(".scroll").before(columns(table));
  more.addEventListener("click", () => {
    limit = Infinity;
    show();
  });
  block.querySelector(".scroll").after(more);
  show();
}

// On a desk no column is cut: a table that is too wide is set tight, then its less important columns wait for a button.
const rules = document.head.appendChild(document.createElement("style"));
const fitted = [];
function columns(table) {
  const button = document.createElement("button");
  button.type = "button";
  const heads = [...table.tHead.rows[0].cells];
  const rows = [...table.tBodies[0].rows].slice(0, 200);
  const same = (column) => rows.length > 1 && rows.every((row) => row.cells[column].textContent === rows[0].cells[column].textContent);
  const all = heads.map((_, column) => column).slice(1).reverse();
  const later = "wide" in table.dataset ? all.filter((column) => heads[column].classList.contains("r")) : [];
  const least = [...new Set([...later, ...all.filter(same)])];
  fitted.push({ table, button, heads, later, least, most: all.filter((column) => !least.includes(column)), few: true });
  button.addEventListener("click", () => {
    const state = fitted.find((each) => each.button === button);
    state.few = !state.few;
    fit();
  });
  return button;
}
// All tables at once, so that the page is laid out only a few times.
function fit() {
  for (const state of fitted) {
    state.hidden = [];
    state.table.classList.remove("tight", "wrap");
  }
  paint();
  const shown = innerWidth < 900 ? [] : fitted.filter(({ table }) => table.offsetParent);
  let wide = shown.filter((state) => over(state) > 1);
  wide.forEach(({ table }) => table.classList.add("tight"));
  shown.filter((state) => state.few).forEach((state) => hide(state, state.least, state.later));
  wide = wide.filter((state) => state.few && over(state) > 1);
  paint();
  wide.forEach(({ table }) => table.classList.add("wrap"));
  wide.filter((state) => state.table.scrollWidth > state.table.closest(".scroll").clientWidth + 1).forEach((state) => hide(state, state.most, []));
  paint();
  for (const { button, few, hidden } of fitted) {
    button.hidden = few && !hidden.length;
    button.textContent = few ? `All columns (${hidden.length} more)` : "Fewer columns";
  }
}
// How far a table without the columns that are to be hidden is wider than its room.
function over({ table, heads, hidden }) {
  const gone = hidden.reduce((sum, column) => sum + heads[column].offsetWidth, 0);
  return table.scrollWidth - gone - table.closest(".scroll").clientWidth;
}
function hide(state, columns, anyway) {
  let left = over(state);
  for (const column of columns) {
    if (left <= 1 && !anyway.includes(column)) continue;
    left -= state.heads[column].offsetWidth;
    state.hidden.push(column);
  }
}
function paint() {
  rules.textContent = fitted
    .flatMap(({ table, hidden }) => (hidden || []).map((column) => [table.closest(".block").id, column + 1]))
    .map(([id, nth]) => `#${id} tr > :nth-child(${nth}) { display: none }`)
    .join("\n");
}

function labelled(words, field, title) {
  const label = document.createElement("label");
  label.append(words, field);
  field.setAttribute("aria-label", `${words}: ${title}`);
  return field;
}

// Words for marks: under the pointer, by touch, and with the arrow keys while a figure has the focus.
const tip = document.getElementById("tip");
let lit = null;
function tell(mark) {
  if (lit) lit.classList.remove("on");
  lit = mark;
  tip.hidden = !mark;
  if (!mark) return;
  mark.classList.add("on");
  tip.textContent = mark.dataset.t;
  const at = mark.getBoundingClientRect();
  const own = tip.getBoundingClientRect();
  const left = at.left + at.width / 2 - own.width / 2;
  const top = at.top - own.height - 8;
  tip.style.left = `${Math.max(6, Math.min(left, innerWidth - own.width - 6))}px`;
  tip.style.top = `${top < 6 ? Math.min(at.bottom + 8, innerHeight - own.height - 6) : top}px`;
}
document.addEventListener("pointerover", (event) => tell(event.target.closest("[data-t]")));
document.addEventListener("scroll", () => tell(null), { passive: true, capture: true });
document.addEventListener("keydown", (event) => {
  const figure = document.activeElement.closest("figure > svg");
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") tell(null);
  if (!figure || !step) return;
  const marks = [...figure.querySelectorAll("[data-t]")];
  if (!marks.length) return;
  event.preventDefault();
  const next = marks.indexOf(lit) + step;
  tell(marks[(next + marks.length) % marks.length]);
});
document.addEventListener("focusout", () => tell(null));

document.querySelectorAll(".block").forEach(enhance);
fit();
let asked = 0;
function later() {
  cancelAnimationFrame(asked);
  asked = requestAnimationFrame(fit);
}
addEventListener("resize", later);
document.querySelectorAll("details").forEach((each) => each.addEventListener("toggle", later));
addEventListener("beforeprint", () => {
  rules.textContent = "";
  document.querySelectorAll("details").forEach((each) => { each.open = true; });
});
addEventListener("afterprint", fit);
