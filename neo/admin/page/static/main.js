// The page: asks the admin node every few seconds, and shows what it says.

import { renderCells } from "./cells.js";
import { byId, h, show } from "./dom.js";
import { signedIn, startSession } from "./session.js";
import {
  listed, renderBackups, renderDisks, renderFigures, renderNodes, renderOperations, renderProblems, renderTransactions,
} from "./view.js";
import { duration, stateWords } from "./words.js";

const POLL_MS = 2000;
/** The admin node answers in 10 seconds, or with an error. */
const TIMEOUT_MS = 15000;

/** The last answer, and when it came by the clock of the browser that never jumps. */
let answer = null;
let answeredAt = 0;
/** Why there is no answer now; null if there is one. */
let silence = null;
let silentSince = 0;
let timer = null;
let asking = false;

async function poll() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  try {
    const response = await fetch("api/status", { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    const data = await response.json();
    if (!response.ok) throw new Error(data.error?.message ?? `HTTP ${response.status}`);
    answer = data;
    answeredAt = performance.now();
    silence = null;
  } catch (error) {
    if (silence === null) silentSince = performance.now();
    silence = error.name === "TimeoutError" ? "it does not answer" : error.message;
  }
  asking = false;
  render();
  timer = setTimeout(poll, POLL_MS);
}

/** Return how old what is shown is, in seconds; null if nothing is. */
function age() {
  if (answer === null || answer.seen === null) return null;
  return Math.max(answer.now - answer.seen + (performance.now() - answeredAt) / 1000, 0);
}

function render() {
  const fresh = silence === null && answer.connected;
  document.body.classList.toggle("stale", !fresh);
  byId("live-words").textContent = fresh ? "live" : "not live";
  byId("live").className = fresh ? "ok" : "bad";
  show("away", fresh ? null : [silence === null, answer?.seen === null], renderAway);
  tick();
  if (answer === null) return;
  byId("cluster").textContent = `NEO cluster ${answer.cluster}`;
  byId("footer").textContent = `Admin node of version ${answer.version}. Times are those of its clock.`;
  const { status } = answer;
  show("state", [fresh, status?.state], ([live, state]) => renderState(live, state));
  const count = fresh ? status.problems.length : 1;
  document.title = `${count ? `(${count}) ` : ""}${fresh ? status.state : "not live"} – ${answer.cluster} – NEO`;
  if (status !== null) renderStatus(status, fresh);
}

function renderState(live, state) {
  if (!live) return h("span", { class: "badge bad" }, state ? `was ${state}` : "unknown");
  const css = state === "RUNNING" || state === "BACKINGUP" ? "ok" : "bad";
  return [h("span", { class: `badge ${css}` }, state ?? "UNKNOWN"), ` ${stateWords(state)}`];
}

function renderAway(what) {
  if (what === null) return [];
  const [answers, never] = what;
  const old = never ? "" : " What is shown is old.";
  if (!answers) {
    return h("div", { class: "away" },
      h("p", {}, h("strong", {}, "The admin node does not answer."), old, " ", h("span", { id: "since" })),
      h("p", {}, "What to do: look whether ", h("code", {}, "neoadmin"), " runs, and at its log; the cluster may work without it."));
  }
  return h("div", { class: "away" },
    h("p", {}, h("strong", {}, "The primary master is away:"), " the admin node is not connected to one, or it does not answer.", old,
      " ", h("span", { id: "since" })),
    h("p", {}, "What to do: look whether ", h("code", {}, "neomaster"), " runs on its machine, and at its log; start it;"
      + " with several masters, a majority of them must run and reach each other. Applications wait meanwhile."));
}

function renderStatus(status, fresh) {
  const storages = status.nodes.filter((node) => node.type === "STORAGE");
  const { partitions, ptid, replicas } = status;
  show("problems-body", { problems: status.problems, fresh }, renderProblems);
  show("figures-body", { status, commits: answer.commits, now: answer.now, fresh }, renderFigures);
  const signed = signedIn(); // sections with commands are drawn anew when somebody signs in or out
  section("operations", { rows: status.operations, signed }, ({ rows }) => renderOperations(rows, answer.now),
    status.operations.length);
  show("cells-body", { partitions, nodes: storages, ptid, replicas, signed }, renderCells);
  show("nodes-body", { nodes: status.nodes, disks: status.disks, primary: status.primary }, renderNodes);
  section("disks", status.disks, renderDisks, status.disks.length);
  const backups = { watched: status.backups, sync: status.sync?.backups ?? [] };
  section("backups", backups, renderBackups, backups.watched.length + backups.sync.length);
  const { prepared, undecided } = status;
  const rows = listed(status.transactions);
  section("transactions", { rows, prepared, undecided, signed }, renderTransactions, rows.length + undecided);
}

/** Show a section if it has something to say. */
function section(id, data, draw, count) {
  byId(id).hidden = !count;
  if (count) show(`${id}-body`, data, draw);
}

/** Tell how old everything is. Not in the live region: a screen reader need not count seconds. */
function tick() {
  const seconds = age();
  byId("age").textContent = seconds === null ? "" : `${Math.floor(seconds)} s old`;
  const since = byId("since");
  if (since === null) return;
  const old = seconds === null ? "Nothing was seen yet." : `It is of ${duration(seconds)} ago.`;
  since.textContent = silence === null ? old
    : `${old} No answer for ${duration((performance.now() - silentSince) / 1000)} (${silence}).`;
}

document.addEventListener("visibilitychange", poll);
setInterval(tick, 1000);
startSession(render);
poll();
