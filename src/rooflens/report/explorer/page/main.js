// Puts the parts together: whatever is chosen, all of them show the same rows.

const parts = [];
function changed() {
  keepInAddress();
  show();
}

function show(unknown = []) {
  const rows = chosenRows(null);
  showChoices();
  selects.forEach((take) => take());
  const words = choicesInWords();
  document.getElementById("shown").textContent =
    `${plural(rows.length, "row")} of ${page.count.toLocaleString("en")}` +
    (unknown.length ? `. Not in these files: ${unknown.join(", ")}` : "");
  const alike = isAsOpened() && words.some(([facet]) => facet.key !== "part");
  document.getElementById("told").textContent =
    (alike ? "To begin with, the largest set whose steps compare: " : "") + words.map(([, text]) => text).join("; ");
  document.getElementById("nothing").hidden = rows.length > 0;
  document.getElementById("views").hidden = rows.length === 0;
  if (rows.length) parts.forEach((part) => part(rows));
  else showNothing(words);
  showPicked();
}

// An empty choice says what was asked for, and which choice to give up.
function showNothing(words) {
  const section = document.getElementById("nothing");
  if (!page.count) {
    section.replaceChildren(make("p", { className: "prose" }, "The files hold no records."));
    return;
  }
  const buttons = words.map(([facet, text]) => {
    const button = make("button", { type: "button", className: "more" }, `Give up ${text}`);
    button.addEventListener("click", () => {
      state.chosen[facet.key].clear();
      changed();
      document.getElementById("shown").focus();
    });
    return button;
  });
  section.replaceChildren(make("p", { className: "prose" }, "No row is all of this at once."), ...buttons);
}

function tools() {
  const place = document.getElementById("roofline-tools");
  if (page.levels.length > 1)
    place.append(selectOf("Memory level", page.levels.map((level) => [level, level]), "level", changed));
  const several = page.facets.filter((facet) => facet.values.length > 1);
  if (several.length > 1) {
    const entries = [["", "what differs first"], ...several.map((facet) => [facet.key, facet.title.toLowerCase()])];
    place.append(selectOf("Colour", entries, "colour", changed));
  }
}

buildChoices(changed);
document.querySelector("aside").hidden = !choosable.length;
tools();
const held = new Set(page.memory.row);
const stepsTable = tableView("steps", "Steps", page.columns, (row) => row, "sort", changed);
const memoryTable = tableView("held", "Memory of each step", page.memory.columns, (row) => heldOf.get(row), "held", changed);
parts.push(drawRoofline, rankingView(changed), spentView(changed), memoryView(changed), stepsTable, (rows) => {
  const known = sourceIsShown("estimate") ? rows.filter((row) => held.has(row)) : [];
  document.getElementById("held").hidden = !known.length;
  if (known.length) memoryTable(known);
});
const notes = make("ul", { className: "notes" }, ...page.notes.all.map((note) => make("li", {}, note)));
document.getElementById("notes").append(
  page.notes.all.length > 6 ? make("details", {}, make("summary", {}, plural(page.notes.all.length, "note")), notes) : notes);
document.getElementById("notes").hidden = !page.notes.all.length;

document.getElementById("reset").addEventListener("click", () => {
  reset();
  for (const facet of choosable) state.chosen[facet.key].clear();
  changed();
});
document.getElementById("close").addEventListener("click", unpick);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.pick !== "" && lit === null) unpick();
});
addEventListener("hashchange", () => {
  if (location.hash.slice(1) !== toFragment()) show(fromFragment(location.hash.slice(1)));
});
addEventListener("beforeprint", () => document.querySelectorAll("main details").forEach((each) => (each.open = true)));
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return; // a phone's bars come and go
  width = innerWidth;
  show();
});
if (isNarrow) document.getElementById("choices").open = false;
show(fromFragment(location.hash.slice(1)));
