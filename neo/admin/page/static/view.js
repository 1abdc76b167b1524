// The sections of the page.

import { h, table } from "./dom.js";
import { commandButton } from "./session.js";
import {
  adviceSteps, bytes, cellsInWords, duration, mayFail, moment, operationTitle, plural, rate,
} from "./words.js";

const LOW = 0.2;
const VERY_LOW = 0.1;

// -- problems ---------------------------------------------------------------------------------------

export function renderProblems({ problems, fresh }) {
  if (!problems.length) {
    return fresh ? h("p", { class: "good" }, "No problem.") : h("p", {}, "There was none when the cluster was last seen.");
  }
  return h("ul", { class: "problems" }, problems.map(({ severity, text, advice }) =>
    h("li", { class: severity },
      h("p", {}, h("strong", {}, `${severity}: `), text),
      h("div", { class: "advice" }, h("span", { class: "what" }, "What to do"), renderAdvice(advice)))));
}

function renderAdvice(advice) {
  return h("ol", {}, adviceSteps(advice).map((step) =>
    h("li", {}, step.map(({ text, command }) => (command ? h("code", {}, text.trim()) : text)))));
}

// -- figures ----------------------------------------------------------------------------------------

const figure = (title, value, ...more) =>
  h("div", { class: "figure" }, h("h3", {}, title), h("p", { class: "value" }, value), more);
const note = (text) => h("p", { class: "note" }, text);

export function renderFigures({ status, commits, now, fresh }) {
  const found = [renderRate(fresh ? status.state : null, fresh ? commits : { ...commits, per_second: null }), renderLast(status, now)];
  found.push(figure(fresh ? "May fail now" : "Could fail", mayFail(status), note(status.partitions.length
    ? `${plural(status.partitions.length, "partition")}, ${plural(status.replicas, "replica")}`
    : "no partition table yet")));
  const { election } = status;
  found.push(figure("Primary master", status.primary, note(election
    ? `epoch ${election.epoch}, ${plural(election.masters.length, "master")}`
    : "the only master")));
  const waiting = status.transactions.reduce((sum, row) => sum + row.waiting, 0);
  found.push(figure("Open transactions", String(status.open),
    note(waiting ? `${plural(waiting, "other")} wait for them` : "none waits for a lock"),
    status.undecided ? note(`${status.undecided} prepared, not decided`) : null));
  const { upstream } = status;
  if (upstream || status.lag !== null) found.push(renderLag(status));
  return found;
}

function renderRate(state, { per_second: value, total, since, history }) {
  const known = history.filter(([, each]) => each !== null);
  if (value === null) {
    const why = { BACKINGUP: "what a standby gets is not counted", RUNNING: "being measured" };
    return figure("Commits per second", "–", note(why[state] ?? "not known now"), renderSpark(history, known));
  }
  return figure("Commits per second", rate(value), renderSpark(history, known),
    note(`${total.toLocaleString("en")} since ${moment(since)}`));
}

/** The rates of ten minutes, or of what is known, as a line. */
function renderSpark(history, known) {
  if (known.length < 2) return null;
  const [width, height, seconds] = [200, 40, Math.max(60, ...history.map(([age]) => age))];
  const top = Math.max(...known.map(([, each]) => each), 1);
  const at = ([age, each]) =>
    `${(width - (age / seconds) * width).toFixed(1)},${(height - 1 - (each / top) * (height - 3)).toFixed(1)}`;
  const lines = [[]];
  for (const each of history) {
    if (each[1] === null) lines.push([]);
    else lines[lines.length - 1].push(at(each));
  }
  const label = `the last ${duration(Math.max(...known.map(([age]) => age)) + 5)}: at most`
    + ` ${rate(Math.max(...known.map(([, each]) => each)))} per second`;
  return [
    h("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label, class: "spark" },
      h("line", { x1: 0, x2: width, y1: height - 1, y2: height - 1 }),
      lines.filter((line) => line.length > 1).map((line) => h("polyline", { points: line.join(" ") }))),
    note(label),
  ];
}

function renderLast(status, now) {
  if (status.last_time === null) return figure("Last transaction", "none yet");
  const age = now - status.last_time;
  return figure("Last transaction", age >= 1 ? `${duration(age)} ago` : age >= -1 ? "just now" : "in the future: check the clocks",
    note(`${status.last_tid_date.split(".")[0]} UTC`), note(`tid ${status.last_tid}`));
}

function renderLag({ upstream, lag }) {
  const value = lag === null ? "not known" : `${lag.toFixed(1)} s`;
  return figure("Lag of this standby", value,
    upstream ? note(`upstream cluster ${upstream.cluster}: ${upstream.heard ? "heard" : upstream.reason}`) : null);
}

// -- operations -------------------------------------------------------------------------------------

export const renderOperations = (rows, now) => rows.map((row) => {
  const percent = `${Math.floor(row.done * 100)} %`;
  return h("article", { class: "operation" },
    h("h3", {}, operationTitle(row)),
    h("p", {}, h("span", { class: "badge busy" }, row.state.toLowerCase().replace("_", " ")),
      ` for ${duration(Math.max(now - row.since, 0))}${row.text ? `; ${row.text}` : ""}`),
    h("p", { class: "progress" },
      h("progress", { max: 1, value: row.done, "aria-label": `progress of operation ${row.id}` }), percent),
    h("ol", { class: "steps" }, row.steps.map((step, index) => renderStep(step, index, row))),
    row.state === "RUNNING" ? commandButton("abort", String(row.id)) : null);
});

/** A step: what each of its nodes has done. */
function renderStep(step, index, row) {
  const marks = row.progress.filter((each) => each.step === index).map(({ node, mark, done, text }) => {
    const percent = done > 0 && done < 1 ? ` ${Math.floor(done * 100)} %` : "";
    return `${node}: ${mark}${percent}${text ? ` (${text})` : ""}`;
  });
  return h("li", {}, h("strong", {}, step.name), ` – ${marks.join(", ") || step.nodes.join(", ")}`);
}

// -- nodes and disks --------------------------------------------------------------------------------

const NODE_COLUMNS = ["node", "type", "address", "state", "version", "copies of partitions"];

export function renderNodes({ nodes, disks, primary }) {
  const known = new Map(disks.map((row) => [row.nid, row]));
  return table("Nodes", NODE_COLUMNS.map((title) => ({ title })), nodes.map((node) => [
    node.nid,
    node.nid === primary ? "primary master" : node.type.toLowerCase(),
    node.address ?? "–",
    h("span", { class: `badge ${{ RUNNING: "ok", DOWN: "bad" }[node.state] ?? "busy"}` }, node.state),
    known.get(node.nid)?.version ?? "–",
    renderCopies(node),
  ]));
}

function renderCopies(node) {
  if (node.type !== "STORAGE") return "–";
  const says = node.says === undefined ? null
    : node.says === null ? "its process is not reached" : node.says || "its process runs, and says nothing";
  return [cellsInWords(node.cells ?? {}), says ? h("span", { class: "says" }, ` – ${says}`) : null];
}

export const renderDisks = (disks) => table(
  "Disks of storage nodes",
  [{ title: "node" }, { title: "keeps", right: true }, { title: "disk of" }, { title: "free", right: true }, { title: "used" }],
  disks.flatMap((row) => row.disks.map((disk, index) => {
    const part = disk.total ? disk.free / disk.total : 1;
    const css = part < VERY_LOW ? "bad" : part < LOW ? "low" : "";
    const words = part < VERY_LOW ? ", nearly full" : part < LOW ? ", low" : "";
    return [
      row.nid,
      index ? "" : bytes(row.bytes),
      disk.what,
      `${bytes(disk.free)} of ${bytes(disk.total)} (${Math.floor(part * 100)} %${words})`,
      renderBar(1 - part, css),
    ];
  })),
);

function renderBar(part, css) {
  const fill = h("span", { class: `fill ${css}` });
  fill.style.width = `${Math.round(part * 100)}%`;
  return h("span", { class: "bar", role: "img", "aria-label": `${Math.round(part * 100)} % used` }, fill);
}

// -- backups and transactions -----------------------------------------------------------------------

const SYNC_WORDS = {
  off: "switched off", async: "not in sync", joining: "joining", sync: "in sync", lost: "lost: commits wait for it",
};

export function renderBackups({ watched, sync }) {
  const rows = watched.map((row) => [
    row.name, row.state ?? "not connected", row.lag === null ? "–" : `${row.lag.toFixed(1)} s`, row.text,
  ]);
  for (const row of sync) {
    const lost = row.lost === null ? "lost if it takes over now: not known"
      : `lost if it takes over now: ${row.lost ? `${row.lost.toFixed(1)} s of commits` : "nothing"}`;
    rows.push([`${row.name} (synchronous)`, SYNC_WORDS[row.state] ?? row.state, "–",
      `since ${moment(row.since)}; ${lost}${row.reason ? `; ${row.reason}` : ""}`]);
  }
  return table("Standbys", [{ title: "cluster" }, { title: "state" }, { title: "lag", right: true }, { title: "what is known" }], rows);
}

/** Transactions that are this old are listed: others come and go while one reads. */
const LISTED_SECONDS = 2;
export const listed = (rows) => rows.filter((row) => row.age >= LISTED_SECONDS || row.waiting);

export function renderTransactions({ rows, prepared, undecided }) {
  const found = [];
  if (rows.length) {
    found.push(table("Open transactions",
      [{ title: "transaction" }, { title: "client" }, { title: "age", right: true }, { title: "phase" }, { title: "others wait", right: true }],
      rows.map((row) => [row.ttid, `${row.client} ${row.address ?? ""}`, `${row.age.toFixed(1)} s`, row.phase,
        [row.waiting ? commandButton("end", row.ttid) : null, ` ${row.waiting}`]])));
  }
  if (prepared.length) {
    found.push(h("h3", {}, "Prepared transactions"), table("Prepared transactions",
      [{ title: "xid" }, { title: "since" }, { title: "objects", right: true }, { title: "state" }, { title: "text" }],
      prepared.map((row) => [row.xid, moment(row.since), String(row.objects), row.state, row.text])));
    if (undecided > prepared.length) found.push(note(`The first ${prepared.length} of ${undecided}.`));
  }
  return found;
}
