// Elements of a page. Text becomes text nodes: nothing that a node says is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "polyline", "line"]);

/** Return an element. `attributes`: null and false leave one out; `onclick` and such are listeners. */
export function h(tag, attributes, ...children) {
  const element = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...there(children));
  return element;
}

/** Return what there is: null stands for nothing. */
const there = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined);

export const byId = (id) => document.getElementById(id);

const shown = new Map();

/** Show `render(data)` in an element, unless it shows the same data already. Keep the focus. */
export function show(id, data, render) {
  const text = JSON.stringify(data);
  if (shown.get(id) === text) return;
  shown.set(id, text);
  const element = byId(id);
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const open = new Set([...element.querySelectorAll("details[open]")].map((each) => each.dataset.key));
  element.replaceChildren(...there([render(data)]));
  for (const each of element.querySelectorAll("details")) each.open = open.has(each.dataset.key);
  if (key) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
}

/** Return a table that narrow screens show as cards. `columns`: {title, right}; a cell: text or elements. */
export function table(label, columns, rows) {
  const head = columns.map((column) =>
    h("th", { scope: "col", role: "columnheader", class: column.right ? "right" : null }, column.title));
  const body = rows.map((cells) => h("tr", { role: "row" }, cells.map((cell, index) => h(
    index ? "td" : "th",
    {
      role: index ? "cell" : "rowheader",
      scope: index ? null : "row",
      class: columns[index].right ? "right" : null,
      "data-title": columns[index].title,
    },
    cell,
  ))));
  return h("table", { role: "table", "aria-label": label },
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, head)),
    h("tbody", { role: "rowgroup" }, body));
}
