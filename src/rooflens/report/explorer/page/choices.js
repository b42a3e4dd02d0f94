// What is chosen, in the address of the page and in its controls. Nothing ticked means everything.

const source = { key: "source", title: "Source", values: page.sources.titles, pattern: "{}", first: [] };
const choosable = [...page.facets, source].filter((facet) => facet.values.length > 1);
const LONG = 12; // values beyond which a list of choices has a field to search in

const ALL = "*"; // what the address says of a choice that was given up

const firstLevel = page.levels.includes("dram") ? "dram" : page.levels[0];
const firstRank = page.firstRank;
const SINGLE = { level: firstLevel, rank: firstRank, colour: "", sort: "", held: "", pick: "" };
const state = { chosen: {}, ...SINGLE };
reset();

function reset() {
  Object.assign(state, SINGLE);
  for (const facet of choosable) state.chosen[facet.key] = new Set(defaults(facet));
}

const isAsOpened = () => choosable.every((facet) => String([...state.chosen[facet.key]]) === String(defaults(facet)));

function defaults(facet) {
  return facet.first.map((text) => facet.values.indexOf(text));
}

function meets(facet, row) {
  const chosen = state.chosen[facet.key];
  if (!chosen.size) return true;
  if (facet !== source) return chosen.has(facet.of[row]);
  return [...chosen].some((number) => page.sources.of[row] & (1 << number));
}

const isChosen = (number) => !state.chosen.source?.size || state.chosen.source.has(number);
const sourceIsShown = (key) => isChosen(page.sources.keys.indexOf(key));
const chosenRows = (except) =>
  ROWS.filter((row) => choosable.every((facet) => facet === except || meets(facet, row)));

// The address: only what differs from how the page opens.
function toFragment() {
  const parts = [];
  for (const facet of choosable) {
    const chosen = [...state.chosen[facet.key]].sort((a, b) => a - b);
    if (String(chosen) !== String(defaults(facet)))
      parts.push(`${facet.key}=${chosen.map((value) => encodeURIComponent(facet.values[value])).join(",") || ALL}`);
  }
  for (const [name, first] of Object.entries(SINGLE))
    if (state[name] !== first) parts.push(`${name}=${encodeURIComponent(state[name])}`);
  return parts.join("&");
}

// Returns what the address names and the page has not.
function fromFragment(fragment) {
  reset();
  const unknown = [];
  for (const part of fragment.split("&").filter((each) => each.includes("="))) {
    const name = part.slice(0, part.indexOf("="));
    const words = part.slice(name.length + 1).split(",").map(decoded);
    const facet = choosable.find((each) => each.key === name);
    if (facet && words[0] === ALL) {
      state.chosen[name].clear();
    } else if (facet) {
      const numbers = words.map((word) => facet.values.indexOf(word));
      state.chosen[name] = new Set(numbers.filter((number) => number >= 0));
      unknown.push(...words.filter((word, place) => numbers[place] < 0 && word));
    } else if (Object.hasOwn(SINGLE, name) && isKnown(name, words[0])) {
      state[name] = words[0];
    } else {
      unknown.push(part);
    }
  }
  return unknown;
}

function decoded(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word; // somebody typed a lone %
  }
}

function isKnown(name, value) {
  const among = {
    level: page.levels,
    rank: page.ranks.map((rank) => page.columns[rank.column].key),
    colour: page.facets.map((facet) => facet.key),
    sort: page.columns.map((column) => column.key),
    held: page.memory.columns.map((column) => column.key),
    pick: ROWS.map(String),
  }[name];
  return among.includes(name === "sort" || name === "held" ? value.replace(/^-/, "") : value);
}

function keepInAddress() {
  const fragment = toFragment();
  const isInFrame = location.protocol === "about:"; // which has no address of its own: a notebook's
  if (!isInFrame && fragment !== location.hash.slice(1)) history.replaceState(null, "", `#${fragment}`);
}

// The controls.
const isNarrow = matchMedia("(max-width: 900px)").matches;
const boxes = new Map(); // facet -> [[checkbox, count, label] of each value]
function buildChoices(changed) {
  const place = document.getElementById("facets");
  for (const facet of choosable) {
    const list = make("div", { className: "choices" });
    const own = facet.values.map((_, value) => {
      const box = make("input", { type: "checkbox" });
      const count = make("span", { className: "count" });
      const label = make("label", {}, box, make("span", { className: "value" }, facetText(facet, value)), count);
      box.addEventListener("change", () => {
        if (box.checked) state.chosen[facet.key].add(value);
        else state.chosen[facet.key].delete(value);
        changed();
      });
      list.append(label);
      return [box, count, label];
    });
    boxes.set(facet, own);
    const inside = [list];
    if (facet.values.length > LONG) inside.unshift(searchField(facet, own));
    const told = make("span", { className: "count" });
    own.told = told;
    const group = make("fieldset", {}, make("legend", { className: "quiet" }, facet.title), ...inside);
    place.append(make("details", { className: "facet", open: !isNarrow }, make("summary", {}, `${facet.title} `, told), group));
  }
}

function searchField(facet, own) {
  const field = make("input", { type: "search", placeholder: "Search", autocomplete: "off" });
  field.setAttribute("aria-label", `Search ${facet.title.toLowerCase()}`);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    facet.values.forEach((_, value) => {
      const text = facetText(facet, value).toLowerCase();
      own[value][2].hidden = !words.every((word) => text.includes(word));
    });
  });
  return field;
}

// Ticks, and how many rows each value would show beside the other choices.
function showChoices() {
  for (const [facet, own] of boxes) {
    const counts = facet.values.map(() => 0);
    for (const row of chosenRows(facet)) {
      if (facet === source) counts.forEach((_, value) => (counts[value] += page.sources.of[row] & (1 << value) ? 1 : 0));
      else counts[facet.of[row]] += 1;
    }
    const chosen = state.chosen[facet.key];
    own.forEach(([box, count, label], value) => {
      box.checked = chosen.has(value);
      count.textContent = counts[value].toLocaleString("en");
      label.classList.toggle("none", !counts[value]);
    });
    own.told.textContent = chosen.size ? `${chosen.size} of ${own.length}` : `all ${own.length}`;
  }
}

// The choices in words.
function choicesInWords() {
  return choosable
    .filter((facet) => state.chosen[facet.key].size)
    .map((facet) => {
      const values = [...state.chosen[facet.key]].map((value) => facetText(facet, value));
      const more = values.length > 6 ? ` and ${values.length - 6} more` : "";
      return [facet, `${facet.title.toLowerCase()}: ${values.slice(0, 6).join(", ")}${more}`];
    });
}

// What tells rows apart.
const differing = (rows) =>
  page.facets.filter((facet) => rows.some((row) => facet.of[row] !== facet.of[rows[0]]));
function factsOf(row, fields) {
  const isUsual = { options: (text) => !text, part: (text, facet) => facet.first.includes(text) };
  const goesWithoutSaying = (facet, text) => isUsual[facet.key]?.(text, facet);
  const told = fields.filter((facet) => !goesWithoutSaying(facet, facet.values[facet.of[row]]));
  return (told.length ? told : [facetNamed("model")]).map((facet) => inWords(facet, facet.of[row]));
}
const nameOf = (row, fields) => factsOf(row, fields).join(" ");
