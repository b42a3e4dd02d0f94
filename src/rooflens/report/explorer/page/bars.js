// Ranking and memory as bars with their numbers, and all that is known of one row.

const BARS = 15; // that are shown before somebody asks for more

function barList(section, changed) {
  const told = make("p", { className: "prose" });
  const list = make("ol", { className: "bars" });
  const more = make("button", { type: "button", className: "more" });
  const notes = make("ul", { className: "notes" });
  section.append(told, list, more, notes);
  let limit = BARS;
  more.addEventListener("click", () => {
    limit = Infinity;
    changed();
  });
  return (words, bars, remarks) => {
    told.textContent = words;
    list.replaceChildren(...bars.slice(0, limit).map((bar) => bar()));
    more.hidden = bars.length <= limit;
    more.textContent = `Show all ${bars.length.toLocaleString("en")}`;
    notes.replaceChildren(...remarks.map((remark) => make("li", {}, remark)));
  };
}

// pieces: where each begins and how long it is, as shares of the bar; more: words below it.
function barOf(row, fields, words, pieces, more = "") {
  const facts = factsOf(row, fields).map((fact) => make("span", { className: fact.length > 30 ? "" : "s" }, fact));
  const button = make("button", { type: "button", className: "pick" }, ...facts.flatMap((fact) => [fact, " "]));
  button.addEventListener("click", () => pick(row, button));
  const bar = draw("svg", { class: "bar", "aria-hidden": "true" });
  for (const { from, long, ink } of pieces) {
    const size = { x: `${100 * from}%`, width: `${Math.max(0.2, 100 * long)}%`, height: "100%" };
    bar.append(draw("rect", { class: ink, ...size }));
  }
  return make("li", {}, make("div", { className: "of-bar" }, button, make("span", { className: "n" }, words)), bar,
    ...(more ? [make("div", { className: "count" }, more)] : []));
}

const rankNamed = (key) => page.ranks.find((rank) => page.columns[rank.column].key === key);

function rankingView(changed) {
  const section = document.getElementById("ranking");
  if (page.ranks.length) {
    const field = selectOf("Rank by", page.ranks.map((rank) => [page.columns[rank.column].key, rank.title]), "rank", changed);
    section.append(make("div", { className: "tools" }, field));
  }
  const show = barList(section, changed);
  return (rows) => {
    const rank = rankNamed(state.rank);
    if (!rank) {
      show("No number here tells which is better.", [], []);
      return;
    }
    const column = page.columns[rank.column];
    const known = rows.filter((row) => valueOf(column, row) !== null && textOf(column, row) !== "-");
    const less = rank.better === "less";
    known.sort((a, b) => (less ? 1 : -1) * (valueOf(column, a) - valueOf(column, b)));
    const most = known.reduce((sofar, row) => Math.max(sofar, valueOf(column, row)), 0) || 1;
    const fields = differing(rows);
    const colours = coloursFor(rows);
    const bars = known.map((row) => () => {
      const pieces = [{ from: 0, long: valueOf(column, row) / most, ink: `c f ${colours.of(row)}` }];
      return barOf(row, fields, textOf(column, row), pieces);
    });
    const missing = rows.length - known.length;
    const words = known.length ? `Best first: ${less ? "the least" : "the most"} ${rank.title}.` : "";
    show(words, bars, missing ? [`${plural(missing, "row")} without a known ${rank.title}`] : []);
  };
}

// What the time of the bound is spent on: each bar is the whole bound of its row.
function spentView(changed) {
  const section = document.getElementById("spent");
  const { causes, row, shares, text, notes } = page.spent;
  const placeOf = new Map(row.map((each, place) => [each, place]));
  const bound = columnNamed(page.columns, "seconds");
  const legend = make("ul", { className: "legend" });
  section.append(legend);
  const show = barList(section, changed);
  return (rows) => {
    const known = rows.filter((each) => placeOf.has(each) && sourceIsShown("estimate"));
    section.hidden = !known.length;
    known.sort((a, b) => valueOf(bound, b) - valueOf(bound, a));
    const fields = differing(rows);
    const bars = known.map((each) => () => {
      let from = 0;
      const pieces = shares[placeOf.get(each)].map((long, number) => {
        from += long;
        return { from: from - long, long, ink: `c f t${number}` };
      });
      return barOf(each, fields, textOf(bound, each), pieces.filter((piece) => piece.long), text[placeOf.get(each)]);
    });
    const seen = causes.map((_, number) => number).filter((n) => known.some((each) => shares[placeOf.get(each)][n]));
    legend.replaceChildren(...seen.map((n) => make("li", {}, keyOf(`c t${n} f`, "M2,4H18V14H2z"), causes[n])));
    show("The longest bound first; each bar is all of it.", bars, notes);
  };
}

function memoryView(changed) {
  const section = document.getElementById("memory");
  const { columns, causes } = page.memory;
  const [peak, needed, limit, fits] = ["peak", "needed", "device_memory", "fits"].map((key) => columnNamed(columns, key));
  const parts = causes.map((cause) => columnNamed(columns, cause));
  const legend = make("ul", { className: "legend" });
  section.append(legend);
  const show = barList(section, changed);
  const least = (place) => valueOf(needed, place) ?? valueOf(peak, place) ?? 0;
  return (rows) => {
    const known = rows.filter((row) => heldOf.has(row) && sourceIsShown("estimate"));
    known.sort((a, b) => least(heldOf.get(b)) - least(heldOf.get(a)));
    const longOf = (place) => Math.max(valueOf(peak, place) ?? 0, parts.reduce((sum, part) => sum + (valueOf(part, place) ?? 0), 0));
    const most = known.reduce((sofar, row) => Math.max(sofar, longOf(heldOf.get(row))), 0) || 1;
    const fields = differing(rows);
    const bars = known.map((row) => () => {
      const place = heldOf.get(row);
      const pieces = [];
      let from = 0;
      parts.forEach((part, number) => {
        const long = (valueOf(part, place) ?? 0) / most;
        if (long) pieces.push({ from, long, ink: `c f g${number}` });
        from += long;
      });
      if (!pieces.length) pieces.push({ from: 0, long: (valueOf(peak, place) ?? 0) / most, ink: `c f g${OTHERS}` });
      const edge = (valueOf(limit, place) ?? Infinity) / most;
      if (edge < 1) pieces.push({ from: edge, long: 0.004, ink: "limit-of-bar" });
      const of = valueOf(limit, place) === null ? "" : ` of ${textOf(limit, place)}`;
      const over = valueOf(fits, place) === false ? "! does not fit: " : "";
      return barOf(row, fields, `${over}${textOf(peak, place)}${of}`, pieces);
    });
    const seen = parts.filter((part) => known.some((row) => valueOf(part, heldOf.get(row))));
    legend.replaceChildren(...(seen.length > 1 ? seen : []).map((part) =>
      make("li", {}, keyOf(`c g${parts.indexOf(part)} f`, "M2,4H18V14H2z"), part.header)));
    const over = known.filter((row) => valueOf(fits, heldOf.get(row)) === false).length;
    const remarks = [...(over ? [`${plural(over, "step")} of ${known.length.toLocaleString("en")} do not fit`] : []), ...page.memory.notes];
    show(known.length ? "Estimated tensors at the peak, the most first." : "No estimate of memory is among what is chosen.", bars, known.length ? remarks : []);
  };
}

function selectOf(words, entries, name, changed) {
  const select = make("select", {}, ...entries.map(([value, text]) => new Option(text, value)));
  select.addEventListener("change", () => {
    state[name] = select.value;
    changed();
  });
  selects.push(() => (select.value = state[name]));
  return make("label", {}, words, select);
}
const selects = []; // each takes its value from the state

// All of one row, in a panel that stays while choices change.
let opener = null;
function pick(row, from) {
  state.pick = String(row);
  opener = from ?? null;
  showPicked();
  keepInAddress();
  if (from) document.getElementById("picked-title").focus();
}

function unpick() {
  state.pick = "";
  showPicked();
  keepInAddress();
  if (opener?.isConnected) opener.focus();
  else document.getElementById("shown").focus();
}

function showPicked() {
  const panel = document.getElementById("picked");
  panel.hidden = state.pick === "";
  light(null);
  if (panel.hidden) return;
  const row = Number(state.pick);
  const place = heldOf.get(row);
  const cells = [
    ...page.columns.map((column) => [column, row]),
    ...(place === undefined ? [] : page.memory.columns.map((column) => [column, place])),
  ].filter(([column, at]) => column.show !== "files" && ![null, ""].includes(cellOf(column, at)[0]));
  const seen = new Set();
  const facts = cells.filter(([column]) => !seen.has(column.header) && seen.add(column.header));
  const list = facts.map(([column, at]) => make("div", {}, make("dt", {}, column.header), make("dd", {}, textOf(column, at))));
  const notes = page.notes.cells[page.notes.of.length ? page.notes.of[row] : 0] ?? [];
  document.getElementById("picked-title").textContent = nameOf(row, differing(ROWS));
  document.getElementById("picked-facts").replaceChildren(
    make("dl", {}, ...list), make("ul", { className: "notes" }, ...notes.map((note) => make("li", {}, note))));
}
