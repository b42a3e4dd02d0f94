// The roofline: marks of the chosen rows under the ceilings of their devices. Where lines lie is geometry; rates,
// ridges, places of marks and all texts come from Python.

const OTHERS = 16; // the class of values that have no colour of their own
const FEW_LINKS = 300; // rows beyond which lines between marks are a hatching
const MANY_MARKS = 1500;
const FEW_NAMES = 40; // rows beyond which no mark has its name beside it
const LONGEST_NAME = 38;
const REACH = 16; // pixels from a pointer in which a mark is meant
const SHAPES = {
  circle: (x, y, r) => `M${x - r},${y}a${r},${r} 0 1 0 ${2 * r},0a${r},${r} 0 1 0 ${-2 * r},0z`,
  diamond: (x, y, r) => `M${x},${y - 1.3 * r}l${1.3 * r},${1.3 * r}l${-1.3 * r},${1.3 * r}l${-1.3 * r},${-1.3 * r}z`,
  square: (x, y, r) => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}z`,
  "triangle-up": (x, y, r) => `M${x},${y - 1.3 * r}l${1.2 * r},${2.1 * r}h${-2.4 * r}z`,
  "triangle-down": (x, y, r) => `M${x},${y + 1.3 * r}l${1.2 * r},${-2.1 * r}h${-2.4 * r}z`,
  cross: (x, y, r) => `M${x - r},${y}h${2 * r}M${x},${y - r}v${2 * r}`,
};

// Which value each colour tells.
function coloursFor(rows) {
  const facet = facetNamed(state.colour) ?? differing(rows)[0] ?? facetNamed("model");
  const all = facet.values.length <= OTHERS;
  const seen = [...new Set(rows.map((row) => facet.of[row]))].sort((a, b) => a - b);
  const own = all ? facet.values.map((_, value) => value) : seen.slice(0, seen.length > OTHERS ? OTHERS - 1 : OTHERS);
  const places = new Map(page.devices.map((device, number) => [device.name, number % 10]));
  const ink = (value, place) => (facet.key === "device" ? `v${places.get(facet.values[value])}` : `g${place}`);
  const known = own.filter((value) => facet.key !== "device" || places.has(facet.values[value]));
  const classes = new Map(known.map((value, place) => [value, ink(value, place)]));
  const others = seen.filter((value) => !classes.has(value)).length;
  return { facet, seen, others, of: (row) => classes.get(facet.of[row]) ?? `g${OTHERS}`, named: classes };
}

// The marks of rows at the chosen level, by the chosen sources.
function chosenMarks(rows) {
  const { source: whose, level } = page.marks;
  return rows.flatMap((row) => marksOf[row].filter((mark) => level[mark] === state.level && sourceIsShown(whose[mark])));
}

// The ceilings of the devices of rows: those that their work uses, of many devices the highest.
function ceilingsFor(rows) {
  const used = new Map();
  for (const row of rows) {
    if (page.on[row] < 0) continue;
    const own = used.get(page.on[row]) ?? new Set();
    (page.uses.cells[page.uses.of.length ? page.uses.of[row] : 0] ?? []).forEach((resource) => own.add(resource));
    used.set(page.on[row], own);
  }
  return [...used.keys()].sort((a, b) => a - b).map((number) => {
    const device = page.devices[number];
    const level = device.roofs.find((roof) => roof.resource === state.level);
    let flats = device.roofs.filter((roof) => roof.flat && used.get(number).has(roof.resource));
    if (!flats.length) flats = device.roofs.filter((roof) => roof.flat && roof.resource.startsWith("matmul."));
    flats.sort((a, b) => b.rate - a.rate);
    if (used.size > page.fewDevices) flats = flats.slice(0, 1);
    return { number, device, level, flats };
  });
}

const ridgeOf = (roof, flat) => roof.device.ridges[`${flat.resource} ${roof.level?.resource}`];

// Limits of both axes: every mark and every ridge, and how the roofs go on.
function limits(marks, roofs) {
  const { x, y } = page.marks;
  const ridges = roofs.flatMap((roof) => roof.flats.map((flat) => ridgeOf(roof, flat)).filter(Boolean));
  const flats = roofs.flatMap((roof) => roof.flats.map((flat) => flat.rate));
  let [left, right, low, high] = [Infinity, 0, Infinity, 0];
  const within = (from, to, below, above) => {
    left = Math.min(left, from);
    right = Math.max(right, to);
    low = Math.min(low, below);
    high = Math.max(high, above);
  };
  for (const mark of marks) within(x[mark] / 2.5, x[mark] * 2.5, y[mark] / 2.5, y[mark] * 2.5);
  for (const ridge of ridges) within(ridge / (marks.length ? 4 : 100), ridge * 10, low, high);
  for (const rate of flats) within(left, right, rate / 10, rate * 2.5);
  return right && high ? { left, right, low, high } : { left: 0.1, right: 1000, low: 1e9, high: 1e14 };
}

// A logarithmic plane on a figure of some width, in pixels.
function plane(width, bounds) {
  const box = { left: width < 560 ? 72 : 84, right: 12, top: 26, bottom: 46 };
  const height = Math.round(Math.min(560, Math.max(330, 0.56 * width)));
  const across = Math.log(bounds.right / bounds.left);
  const up = Math.log(bounds.high / bounds.low);
  return {
    ...box, ...bounds, width, height, foot: height - box.bottom, end: width - box.right,
    left: box.left,
    x: (value) => box.left + ((width - box.left - box.right) * Math.log(value / bounds.left)) / across,
    y: (value) => box.top + (height - box.top - box.bottom) * (1 - Math.log(value / bounds.low) / up),
    from: bounds.left, to: bounds.right,
  };
}

// Ticks between two values, as many as have room: all, or powers of ten, or some of these.
function ticksBetween(ticks, low, high, most) {
  const within = ticks.filter(([value]) => value >= low && value <= high);
  if (within.length <= most) return within;
  const powers = within.filter(([value]) => Math.abs(Math.log10(value) - Math.round(Math.log10(value))) < 1e-9);
  const every = Math.ceil(powers.length / most);
  return powers.filter((_, place) => place % every === 0);
}

function gridOf(on) {
  const parts = [];
  const text = (x, y, words, anchor) => draw("text", { x, y, "text-anchor": anchor }, words);
  for (const [value, words] of ticksBetween(page.ticks.x, on.from, on.to, Math.max(3, Math.floor(on.width / 90)))) {
    parts.push(draw("path", { class: "grid", d: `M${on.x(value)},${on.top}V${on.foot}` }));
    parts.push(text(on.x(value), on.foot + 17, words, "middle"));
  }
  for (const [value, words] of ticksBetween(page.ticks.y, on.low, on.high, 8)) {
    parts.push(draw("path", { class: "grid", d: `M${on.left},${on.y(value)}H${on.end}` }));
    parts.push(text(on.left - 6, on.y(value) + 4, words, "end"));
  }
  parts.push(draw("path", { class: "axis", d: `M${on.left},${on.top}V${on.foot}H${on.end}` }));
  parts.push(text((on.left + on.end) / 2, on.foot + 38, page.axes.x[state.level], "middle"));
  parts.push(text(4, 14, page.axes.y, "start"));
  return parts;
}

// Lines of ceilings with their names, as far as these have room.
function ceilingsOf(on, roofs) {
  const lines = [];
  const taken = [];
  const along = [];
  const several = roofs.length > 1;
  const hasRoom = !several || on.width > 560; // a phone has these words below the figure
  for (const roof of roofs) {
    const ink = several ? `c v${roof.number % 10}` : "";
    const top = Math.min(roof.flats[0]?.rate ?? on.high, on.high);
    const own = draw("g", { class: ink });
    if (roof.level) {
      const rate = roof.level.rate;
      const [from, to] = [Math.max(on.from, on.low / rate), Math.min(on.to, top / rate)];
      if (from < to) {
        const ends = [on.x(from), on.y(from * rate), on.x(to), on.y(to * rate)];
        own.append(draw("path", { class: "roof", d: `M${ends[0]},${ends[1]}L${ends[2]},${ends[3]}` }));
        const words = `${several ? `${roof.device.name} ` : ""}${roof.level.resource} ${roof.level.text}`;
        if (hasRoom) own.append(slanted(ends, words, along));
      }
    }
    const ridges = roof.flats.map((flat) => ridgeOf(roof, flat)).filter(Boolean);
    for (const flat of roof.flats) {
      const start = Math.max(on.from, ridgeOf(roof, flat) ?? Math.min(on.from, ...ridges));
      const y = on.y(flat.rate);
      if (start >= on.to) continue;
      const dash = flat.resource.startsWith("vector.") ? "6 4" : "none";
      own.append(draw("path", { class: "roof", d: `M${on.x(start)},${y}H${on.end}`, "stroke-dasharray": dash }));
      if (hasRoom && taken.every((other) => Math.abs(other - y) > 13)) {
        const words = `${several ? `${roof.device.name} ` : ""}${flat.resource} ${flat.text}`;
        own.append(draw("text", { class: "label", x: on.end - 4, y: y - 5, "text-anchor": "end" }, words));
        taken.push(y);
      }
    }
    lines.push(own);
  }
  return lines;
}

// Words along a diagonal, near its lower end, behind those of a diagonal close by; none where it is too short for them.
function slanted([x1, y1, x2, y2], words, along) {
  const long = Math.hypot(x2 - x1, y2 - y1);
  const angle = Math.atan2(y2 - y1, x2 - x1);
  const across = y1 * Math.cos(angle) - x1 * Math.sin(angle); // the distance of the line from a corner of the figure
  const behind = along.filter((other) => Math.abs(other.across - across) < 14).map((other) => other.end + 12);
  const start = Math.max(0.14 * long, ...behind);
  const end = start + 6.5 * words.length;
  if (long < end + 12) return "";
  along.push({ across, end });
  const turn = (angle * 180) / Math.PI;
  const about = { class: "label", transform: `translate(${x1},${y1}) rotate(${turn})`, x: start, y: -6 };
  return draw("text", about, words);
}

let spots = []; // [x, y, mark] in pixels, from left to right
function drawRoofline(rows) {
  const figure = document.getElementById("roofline");
  const marks = chosenMarks(rows);
  const roofs = ceilingsFor(rows);
  const on = plane(Math.max(300, figure.clientWidth), limits(marks, roofs));
  const colours = coloursFor(rows);
  const about = {
    viewBox: `0 0 ${on.width} ${on.height}`, role: "img", tabindex: 0,
    "aria-label": `Roofline with ${plural(marks.length, "mark")}. Arrow keys go from mark to mark, Enter shows all of one.`,
  };
  const svg = draw("svg", about, ...gridOf(on), ...ceilingsOf(on, roofs), ...linksOf(on, rows, marks));
  svg.append(...marksOfColour(on, marks, colours), draw("path", { id: "lit", class: "lit", d: "" }));
  figure.replaceChildren(svg, ...legendOf(marks, colours), roofsInWords(roofs), withoutMark(rows, marks));
  spots = marks.map((mark) => [on.x(page.marks.x[mark]), on.y(page.marks.y[mark]), mark]);
  spots.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  svg.append(...namesOf(svg, on, rows));
  listen(svg, on);
  light(null);
}

// One path for each colour and shape: thousands of marks are a few elements.
function marksOfColour(on, marks, colours) {
  const { x, y, row, source: whose, above_roof: above } = page.marks;
  const size = marks.length > MANY_MARKS ? 2.8 : marks.length > 200 ? 3.6 : 4.8;
  const paths = new Map();
  let rings = "";
  for (const mark of marks) {
    const [left, top] = [Number(on.x(x[mark]).toFixed(1)), Number(on.y(y[mark]).toFixed(1))];
    const shape = page.sources.shapes[page.sources.keys.indexOf(whose[mark])];
    const key = `${colours.of(row[mark])} ${shape}`;
    paths.set(key, (paths.get(key) ?? "") + SHAPES[shape](left, top, size));
    if (above[mark]) rings += SHAPES.circle(left, top, size + 3);
  }
  const drawn = [...paths].map(([key, d]) => {
    const [colour, shape] = key.split(" ");
    return draw("path", { class: `c ${colour} ${shape === "cross" ? "l thick" : "d"}`, d });
  });
  const beside = (mark) => ({ class: "flag", x: on.x(x[mark]) + size + 2, y: on.y(y[mark]) + 4 });
  drawn.push(...marks.filter((mark) => page.marks.below_bound[mark]).map((mark) => draw("text", beside(mark), "!")));
  return rings ? [...drawn, draw("path", { class: "above", d: rings })] : drawn;
}

const around = (x, y, reach) => [x - reach, y - reach, x + reach, y + reach];

// What roofs take of a figure, and the words along them, as small boxes.
const linesOf = (svg) =>
  [...svg.querySelectorAll("path.roof")].flatMap((line) =>
    Array.from({ length: Math.ceil(line.getTotalLength() / 6) }, (_, step) => line.getPointAtLength(6 * step)),
  ).map(({ x, y }) => around(x, y, 3));

function wordsOf(svg) {
  const boxes = [];
  for (const words of svg.querySelectorAll("text.label")) {
    const turn = words.transform.baseVal.consolidate()?.matrix;
    for (let letter = 0; letter < words.getNumberOfChars(); letter += 1) {
      const start = words.getStartPositionOfChar(letter);
      const { x, y } = turn ? start.matrixTransform(turn) : start;
      boxes.push([x - 4, y - 10, x + 8, y + 3]);
    }
  }
  return boxes;
}

// The name of each row beside its highest mark, where it covers no mark, no word and no other name, at best no roof.
function namesOf(svg, on, rows) {
  const fields = differing(rows);
  if (rows.length > FEW_NAMES || !fields.length) return [];
  const taken = [...spots.map(([x, y]) => around(x, y, 6)), ...wordsOf(svg)];
  const lines = linesOf(svg);
  const misses = ([x0, y0, x1, y1]) => ([left, top, right, foot]) => x1 <= left || right <= x0 || y1 <= top || foot <= y0;
  const isFree = (box) =>
    box[0] >= on.left && box[2] <= on.end && box[1] >= on.top && box[3] <= on.foot && taken.every(misses(box));
  const highest = new Map();
  for (const [x, y, mark] of spots) {
    const row = page.marks.row[mark];
    if (!highest.has(row) || y < highest.get(row)[1]) highest.set(row, [x, y]);
  }
  const at = new Map(); // rows whose marks lie on one another have a name together
  for (const [row, [x, y]] of highest) {
    const place = `${Math.round(x / 3)} ${Math.round(y / 3)}`;
    at.set(place, [...(at.get(place) ?? []), [row, x, y]]);
  }
  const names = [];
  for (const [[row, x, y], ...others] of at.values()) {
    const name = nameOf(row, fields) + (others.length ? ` and ${others.length} more` : "");
    const shown = name.length > LONGEST_NAME ? `${name.slice(0, 19)}\u2026${name.slice(-18)}` : name;
    const words = draw("text", { class: "label name" }, shown);
    svg.append(words);
    const { width } = words.getBBox();
    words.remove();
    const heights = [-6, -14, 2, -22, 10];
    const beside = heights.flatMap((up) => [[x + 8, y + up], [x - 8 - width, y + up]]);
    const starts = [...beside, [x - width / 2, y - 20], [x - width / 2, y + 8]];
    const boxes = starts.map(([left, top]) => [left, top, left + width, top + 12]).filter(isFree);
    const box = boxes.find((each) => lines.every(misses(each))) ?? boxes[0];
    if (!box) continue;
    taken.push(box);
    words.setAttribute("x", box[0]);
    words.setAttribute("y", box[1] + 10);
    names.push(words);
  }
  return names;
}

// Lines between the marks of a row, and bands of expected times.
function linksOf(on, rows, marks) {
  if (rows.length > FEW_LINKS) return [];
  const { x, y, row, low, high } = page.marks;
  const groups = new Map(rows.map((each) => [each, []]));
  for (const mark of marks) groups.get(row[mark]).push(mark);
  let links = "";
  for (const own of groups.values()) {
    const sorted = own.map((mark) => y[mark]).sort((a, b) => a - b);
    if (own.length > 1) links += `M${on.x(x[own[0]])},${on.y(sorted[0])}L${on.x(x[own[0]])},${on.y(sorted.at(-1))}`;
  }
  let bands = "";
  for (const mark of marks) if (low[mark]) bands += `M${on.x(x[mark])},${on.y(low[mark])}V${on.y(high[mark])}`;
  return [draw("path", { class: "link", d: links }), draw("path", { class: "band-of-expected", d: bands })];
}

const keyOf = (ink, path) =>
  draw("svg", { class: "key", viewBox: "0 0 20 18", "aria-hidden": "true" }, draw("path", { class: ink, d: path }));

function legendOf(marks, colours) {
  const entry = (ink, words) => make("li", {}, keyOf(`c ${ink} f`, "M2,4H18V14H2z"), words);
  const seenHere = new Set(marks.map((mark) => colours.facet.of[page.marks.row[mark]]));
  const shown = colours.seen.filter((value) => colours.named.has(value) && seenHere.has(value));
  const entries = shown.map((value) => entry(colours.named.get(value), inWords(colours.facet, value)));
  if (colours.others) entries.push(entry(`g${OTHERS}`, `${colours.others} more (point at a mark to see which)`));
  const seen = new Set(marks.map((mark) => page.marks.source[mark]));
  const shapes = page.sources.keys.filter((each) => seen.has(each)).map((each) => {
    const number = page.sources.keys.indexOf(each);
    const shape = page.sources.shapes[number];
    const ink = shape === "cross" ? "l thick sign" : "sign";
    return make("li", {}, keyOf(ink, SHAPES[shape](10, 9, 5)), page.sources.titles[number]);
  });
  const lists = [shapes];
  if (entries.length > 1) lists.push(entries);
  return lists.map((list) => make("ul", { className: "legend" }, ...list));
}

function roofsInWords(roofs) {
  const lines = roofs.map(({ number, device, level, flats }) => {
    const known = [...(level ? [level] : []), ...flats];
    const words = known.map((roof) => `${roof.resource} ${roof.text} (${roof.origin})`);
    if (!level) words.unshift(`no roof at ${state.level} is known`);
    const line = make("li", {}, `${device.title}: ${words.join(", ")}`);
    if (roofs.length > 1) line.prepend(keyOf(`c v${number % 10} roof`, "M0,9H20"));
    return line;
  });
  return make("ul", { className: "notes" }, ...lines);
}

// Rows without a mark, by the reason.
function withoutMark(rows, marks) {
  const drawn = new Set(marks.map((mark) => page.marks.row[mark]));
  const reasons = new Map();
  for (const row of rows.filter((each) => !drawn.has(each))) {
    const own = page.without.cells[page.without.of.length ? page.without.of[row] : 0];
    const reason = own || `nothing of the chosen sources at ${state.level}`;
    reasons.set(reason, (reasons.get(reason) ?? 0) + 1);
  }
  const lines = [...reasons].map(([reason, count]) => make("li", {}, `${plural(count, "row")} without a mark: ${reason}`));
  if (marks.some((mark) => page.marks.above_roof[mark]))
    lines.push(make("li", {}, "A ringed mark is quicker than its roof: a cache, an algorithm with less work, a boost clock, or a wrong number."));
  if (marks.some((mark) => page.marks.below_bound[mark])) lines.push(make("li", {}, page.belowBound));
  return make("ul", { className: "notes" }, ...lines);
}

// A mark under the pointer, or reached with the arrow keys.
let lit = null;
function light(place) {
  lit = place;
  const tip = document.getElementById("tip");
  const ring = document.getElementById("lit");
  const marked = place === null ? spots.filter(([, , mark]) => String(page.marks.row[mark]) === state.pick) : [spots[place]];
  ring?.setAttribute("d", marked.map(([x, y]) => SHAPES.circle(x, y, 8)).join(""));
  tip.hidden = place === null;
  if (place === null) return;
  const [x, y, mark] = spots[place];
  const row = page.marks.row[mark];
  const number = page.sources.keys.indexOf(page.marks.source[mark]);
  tip.textContent = [
    nameOf(row, differing(ROWS)),
    `${page.sources.titles[number]}: ${page.marks.told[mark].join(", ")}`,
    page.marks.above_roof[mark] ? "above its roof" : "",
  ].filter(Boolean).join("\n");
  const frame = ring.ownerSVGElement.getBoundingClientRect();
  const scale = frame.width / ring.ownerSVGElement.viewBox.baseVal.width;
  const own = tip.getBoundingClientRect();
  const [left, top] = [frame.left + x * scale - own.width / 2, frame.top + y * scale - own.height - 12];
  tip.style.left = `${Math.max(6, Math.min(left, innerWidth - own.width - 6))}px`;
  tip.style.top = `${top < 6 ? frame.top + y * scale + 14 : top}px`;
}

function nearest(svg, event) {
  const frame = svg.getBoundingClientRect();
  const scale = frame.width / svg.viewBox.baseVal.width;
  const [x, y] = [(event.clientX - frame.left) / scale, (event.clientY - frame.top) / scale];
  let [best, reach] = [null, REACH];
  spots.forEach(([left, top], place) => {
    const away = Math.hypot(left - x, top - y);
    if (away < reach) [best, reach] = [place, away];
  });
  return best;
}

function listen(svg) {
  svg.addEventListener("pointermove", (event) => light(nearest(svg, event)));
  svg.addEventListener("pointerleave", () => light(null));
  svg.addEventListener("click", (event) => {
    const place = nearest(svg, event);
    light(place);
    if (place !== null) pick(page.marks.row[spots[place][2]], svg);
  });
  svg.addEventListener("blur", () => light(null));
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") light(null);
    if (event.key === "Enter" && lit !== null) pick(page.marks.row[spots[lit][2]], svg);
    if (!step || !spots.length) return;
    event.preventDefault();
    light(((lit ?? (step > 0 ? -1 : 0)) + step + spots.length) % spots.length);
  });
}
