"use strict";
// What Python computed, as the page holds it. Nothing on this page computes a number of a case.

const page = JSON.parse(document.getElementById("data").textContent);
const ROWS = Array.from({ length: page.count }, (_, row) => row);

// A cell is [value, text]; a column without numbers of cells has the same cell in every row.
const cellOf = (column, row) => column.cells[column.of.length ? column.of[row] : 0] ?? [null, "-"];
const textOf = (column, row) => cellOf(column, row)[1];
function valueOf(column, row) {
  const value = cellOf(column, row)[0];
  return column.right && typeof value === "string" ? Number(value) : value; // large counts come as digits
}
const columnNamed = (columns, key) => columns.find((column) => column.key === key);

// The marks of each row, and its place among those whose memory is known.
const marksOf = ROWS.map(() => []);
page.marks.row.forEach((row, mark) => marksOf[row].push(mark));
const heldOf = new Map(page.memory.row.map((row, place) => [row, place]));

const facetNamed = (key) => page.facets.find((facet) => facet.key === key);
const nothing = { model: "no name", batch: "no batch", options: "no options", device: "no device" };
const facetText = (facet, value) => facet.values[value] || nothing[facet.key];
const inWords = (facet, value) =>
  facet.values[value] ? facet.pattern.replace("{}", () => facet.values[value]) : nothing[facet.key];

function make(tag, about = {}, ...inside) {
  const element = document.createElement(tag);
  Object.assign(element, about);
  element.append(...inside);
  return element;
}
const SVG = "http://www.w3.org/2000/svg";
function draw(tag, about, ...inside) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(about)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
