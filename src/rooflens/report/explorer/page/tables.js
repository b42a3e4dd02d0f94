// Tables of rows: sorted by any column, saved as CSV. Texts come from Python, numbers only sort.

const FIRST = 25; // rows that a table shows before somebody asks for more
const UNIT = /(?<=\d) (?=[a-z%\u00b5\u03bc])(?!to\b)/gi; // no line ends between a number and its unit
const TELL = new Set(page.facets.map((facet) => facet.key));

// columns: of the page; placed: from a row to its place in the columns; kept: the name under which the state has its order.
function tableView(id, title, columns, placed, kept, changed) {
  const section = document.getElementById(id);
  const table = make("table");
  const frame = make("div", { className: "scroll", tabIndex: 0 }, table);
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", `Table: ${title}`);
  const told = make("p", { className: "prose told-of-table" });
  const more = make("button", { type: "button", className: "more" });
  const wide = make("button", { type: "button" });
  const save = make("button", { type: "button" }, "Save as CSV");
  const tools = make("div", { className: "tools" }, wide, save);
  section.append(told, tools, frame, more);
  let limit = FIRST;
  let all = false;
  let last = [];
  let lastRows = null;

  more.addEventListener("click", () => {
    limit = Infinity;
    fill(last);
  });
  wide.addEventListener("click", () => {
    all = !all;
    fill(last);
  });
  save.addEventListener("click", () => download(csv(columns, sorted(last).map(placed)), `rooflens-${id}.csv`));

  function sorted(rows) {
    const key = state[kept].replace(/^-/, "");
    const column = columnNamed(columns, key);
    if (!column) return rows;
    const down = state[kept].startsWith("-");
    const keyed = rows.map((row) => [valueOf(column, placed(row)), row]);
    keyed.sort(([a], [b]) => {
      const unknown = (a === null || a === "") - (b === null || b === "");
      return unknown || (a === null ? 0 : down ? ordered(b, a) : ordered(a, b));
    });
    return keyed.map(([, row]) => row);
  }

  function fill(rows) {
    last = rows;
    const { drawn, shared } = visible(columns, rows.map(placed), all);
    told.textContent = shared.join(", ");
    const some = sorted(rows).slice(0, limit);
    const fields = differing(rows);
    const head = make("tr", {}, ...drawn.map((column) => headOf(column)));
    const body = some.map((row) => {
      const line = make("tr", {}, ...drawn.map((column, place) => cellFor(column, row, place === 0, fields)));
      line.classList.toggle("on", String(row) === state.pick);
      return line;
    });
    table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
    more.hidden = some.length >= rows.length;
    more.textContent = `Show all ${rows.length.toLocaleString("en")} rows`;
    wide.textContent = all ? "Fewer columns" : "All columns";
    wide.hidden = !columns.some((column) => column.show === "room" && column.cells.some(([value]) => value !== null));
  }

  function headOf(column) {
    const button = make("button", { type: "button" }, column.header);
    const head = make("th", { scope: "col", className: column.right ? "n" : "" }, button);
    const down = state[kept] === `-${column.key}`;
    head.setAttribute("aria-sort", down ? "descending" : state[kept] === column.key ? "ascending" : "none");
    button.addEventListener("click", () => {
      state[kept] = state[kept] === column.key ? `-${column.key}` : column.key;
      changed();
      [...table.querySelectorAll("th button")].find((each) => each.textContent === column.header)?.focus();
    });
    return head;
  }

  function cellFor(column, row, isFirst, fields) {
    const text = textOf(column, placed(row));
    const long = !column.right && text.length > 40;
    const cell = make("td", { className: [column.right ? "n" : "", long ? "w" : ""].filter(Boolean).join(" ") });
    if (!isFirst) {
      cell.textContent = column.right ? text.replace(UNIT, "\u00a0") : text;
      return cell;
    }
    const button = make("button", { type: "button", className: "pick" }, text);
    button.setAttribute("aria-label", `${text}: show all of ${nameOf(row, fields)}`);
    button.addEventListener("click", () => pick(row, button));
    cell.append(button);
    return cell;
  }

  return (rows) => {
    if (rows !== lastRows) limit = FIRST;
    lastRows = rows;
    fill(rows);
  };
}

const ordered = (a, b) =>
  typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });

// Columns that have something to say of these places, and in words what all of them share.
function visible(columns, places, all) {
  const shared = [];
  const drawn = columns.filter((column) => {
    if (column.show === "files" || (column.show === "room" && !all)) return false;
    if (column.toldBy?.length && !column.toldBy.some(sourceIsShown)) return false;
    const first = cellOf(column, places[0]);
    if (column.of.length === 0 || places.every((place) => cellOf(column, place) === first)) {
      if (first[0] === null || first[0] === "" || (column.ifAny && !first[0])) return false;
      if (TELL.has(column.key) || column.key === "source" || column.key === "phase") {
        if (places.length > 1) shared.push(column.title.replace("{}", () => first[1]) || first[1]);
        return places.length <= 1;
      }
      return true;
    }
    return places.some((place) => cellOf(column, place)[0] !== null && (!column.ifAny || cellOf(column, place)[0]));
  });
  return { drawn, shared };
}

// RFC 4180: every column that files have, raw numbers in base units, nothing where a value is unknown.
function csv(columns, places) {
  const field = (value) => {
    const text = value === null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = places.map((place) => columns.map((column) => field(cellOf(column, place)[0])).join(","));
  return `${[columns.map((column) => field(column.key)).join(","), ...lines].join("\n")}\n`;
}

function download(text, name) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
