// The partition table as a picture: a row of squares for each storage node. Arrow keys move in it.

import { byId, h } from "./dom.js";
import { commandButton } from "./session.js";
import { CELL_STATES, NO_CELL, cellsInWords, partName, parts, plural, worst } from "./words.js";

export function renderCells({ partitions, nodes, ptid, replicas }) {
  if (!partitions.length) return h("p", {}, "There is no partition table yet.");
  const columns = parts(partitions.length);
  const rows = nodes.map((node) => ({
    node,
    cells: columns.map((part) => ({ part, state: worst(partitions, part, node.nid) })),
  }));
  return [
    h("p", { class: "note" }, `${plural(partitions.length, "partition")}, ${replicas + 1}`
      + ` ${replicas ? "copies" : "copy"} wanted of each; partition table ${ptid}.`
      + `${columns[0].last ? ` A square is ${columns[0].last + 1} partitions, and shows the worst of them.` : ""}`),
    h("div", {
      role: "grid",
      "aria-label": "Cells by storage node and partition. Arrow keys move.",
      "aria-readonly": "true",
      class: "grid",
      onkeydown: move,
      onfocusin: tell,
      onmouseover: tell,
    }, rows.map(renderRow)),
    h("p", { id: "cell-words", class: "note", "aria-hidden": "true" }, "Point at a square, or move with the arrow keys."),
    renderLegend(nodes),
    renderWords(partitions, nodes),
    commandButton("tweak"),
  ];
}

function renderRow({ node, cells }, rowIndex) {
  const down = node.state !== "RUNNING";
  return h("div", { role: "row", class: down ? "row down" : "row" },
    h("span", { role: "rowheader", class: "rowhead" }, node.nid, down ? h("small", {}, ` ${node.state}`) : null),
    h("span", { role: "presentation", class: "squares" }, cells.map(({ part, state }, index) => h("span", {
      role: "gridcell",
      class: `cell ${state.css}`,
      tabindex: rowIndex + index ? "-1" : "0",
      "data-key": `${node.nid} ${part.first}`,
      "data-row": rowIndex,
      "data-column": index,
      "aria-label": `${node.nid}${down ? ` (${node.state})` : ""}, ${partName(part)}: ${state.words}`,
    }, state.letter))));
}

/** Move the focus by arrow keys, Home and End. */
function move(event) {
  const cell = event.target.closest(".cell");
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -1e9], End: [0, 1e9] };
  const step = steps[event.key];
  if (!cell || !step) return;
  event.preventDefault();
  const rows = [...event.currentTarget.querySelectorAll(".row")];
  const row = clamp(Number(cell.dataset.row) + step[0], rows.length);
  const cells = [...rows[row].querySelectorAll(".cell")];
  const next = cells[clamp(Number(cell.dataset.column) + step[1], cells.length)];
  next.focus();
}

const clamp = (index, length) => Math.min(Math.max(index, 0), length - 1);

function tell(event) {
  const cell = event.target.closest(".cell");
  if (!cell) return;
  byId("cell-words").textContent = cell.getAttribute("aria-label");
  if (event.type !== "focusin") return;
  // Tab leads to one square: that which had the focus last.
  event.currentTarget.querySelector('.cell[tabindex="0"]')?.setAttribute("tabindex", "-1");
  cell.setAttribute("tabindex", "0");
}

function renderLegend(nodes) {
  const total = {};
  for (const node of nodes) {
    for (const [state, count] of Object.entries(node.cells ?? {})) total[state] = (total[state] ?? 0) + count;
  }
  const items = Object.entries(CELL_STATES).reverse().map(([name, state]) =>
    h("li", {}, h("span", { class: `cell ${state.css}`, "aria-hidden": "true" }, state.letter),
      `${total[name] ?? 0} ${state.words}`));
  items.push(h("li", {}, h("span", { class: "cell none", "aria-hidden": "true" }, NO_CELL.letter), "no copy here"));
  return h("ul", { class: "legend", "aria-label": "Legend" }, items);
}

/** The same in words, for those who do not see a picture. */
function renderWords(partitions, nodes) {
  const running = new Set(nodes.filter((node) => node.state === "RUNNING").map((node) => node.nid));
  const readable = (row) => Object.entries(row.cells)
    .filter(([nid, state]) => running.has(nid) && (state === "UP_TO_DATE" || state === "FEEDING")).length;
  const lost = partitions.filter((row) => !readable(row)).map((row) => row.partition);
  const single = partitions.filter((row) => readable(row) === 1).length;
  return h("details", { "data-key": "words" }, h("summary", { "data-key": "summary" }, "The table in words"),
    h("ul", {}, nodes.map((node) => h("li", {}, `${node.nid}, ${node.state}: ${cellsInWords(node.cells ?? {})}`))),
    h("p", {}, `${partitions.length - lost.length - single} partitions have two or more copies that can be read now,`
      + ` ${single} have one, ${lost.length} have none${lost.length ? `: ${lost.slice(0, 20).join(", ")}` : ""}.`));
}
