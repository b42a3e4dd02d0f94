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
  const words = rows.map((row) => [...row.cells].map((cell) => cell.textContent.toLowerCase()).join(" "));

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
    if ("wide" in table.dataset && heads.some((head) => head.classList.contains("r"))) tools.append(columns(table));
    block.querySelector(".scroll").before(tools);
  }
  more.addEventListener("click", () => {
    limit = Infinity;
    show();
  });
  block.querySelector(".scroll").after(more);
  show();
}

// A wide table begins with the columns that matter most.
function columns(table) {
  const button = document.createElement("button");
  button.type = "button";
  const set = (few) => {
    table.classList.toggle("few", few);
    button.textContent = few ? "All columns" : "Fewer columns";
  };
  button.addEventListener("click", () => set(!table.classList.contains("few")));
  set(true);
  return button;
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
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => { each.open = true; }));
