// Data of /api/status as words. Pure.

const UNITS = [[86400, "day"], [3600, "hour"], [60, "minute"], [1, "second"]];
const PREFIXES = ["bytes", "kB", "MB", "GB", "TB", "PB"];

/** Return "3 hours": the largest unit, rounded down. */
export function duration(seconds) {
  for (const [size, name] of UNITS) {
    if (seconds >= size) return plural(Math.floor(seconds / size), name);
  }
  return "less than a second";
}

export const plural = (count, name) => `${count} ${name}${count === 1 ? "" : "s"}`;

export function bytes(count) {
  let power = 0;
  while (count >= 1000 && power < PREFIXES.length - 1) {
    count /= 1000;
    power += 1;
  }
  return `${power ? count.toFixed(1) : count} ${PREFIXES[power]}`;
}

/** Return a rate with two digits that count. */
export const rate = (value) => (value >= 10 || value === 0 ? value.toFixed(0) : value.toFixed(1));

/** Return a moment as "2026-11-29 12:00:00 UTC". */
export const moment = (seconds) =>
  `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** Return the steps of an advice; each is a list of {text, command}. */
export function adviceSteps(advice) {
  return advice.split(/;\s+/).map((step) =>
    step.split(/(neoctl(?: [^,:;()]+)*)/).filter(Boolean).map((text) =>
      ({ text, command: /^neoctl \S/.test(text) })));
}

/** How many parts the picture of the partition table has at most: more cannot be told apart. */
export const PARTS_MAX = 64;

export const CELL_STATES = {
  CORRUPTED: { letter: "C", css: "corrupted", words: "damaged" },
  OUT_OF_DATE: { letter: "O", css: "outofdate", words: "out of date, to be copied" },
  FEEDING: { letter: "F", css: "feeding", words: "given up when its successor is copied" },
  UP_TO_DATE: { letter: "U", css: "uptodate", words: "up to date" },
};
export const NO_CELL = { letter: "\u00b7", css: "none", words: "no copy" };

/** Return the parts of the picture: ranges of partitions {first, last}. */
export function parts(count) {
  const size = Math.ceil(count / PARTS_MAX) || 1;
  const found = [];
  for (let first = 0; first < count; first += size) {
    found.push({ first, last: Math.min(first + size, count) - 1 });
  }
  return found;
}

/** Return the state of a node's cells in a part: the one that matters most. */
export function worst(partitions, part, nid) {
  const states = new Set();
  for (let each = part.first; each <= part.last; each += 1) states.add(partitions[each].cells[nid]);
  const name = Object.keys(CELL_STATES).find((state) => states.has(state));
  return name ? CELL_STATES[name] : NO_CELL;
}

export const partName = ({ first, last }) =>
  (first === last ? `partition ${first}` : `partitions ${first} to ${last}`);

/** Return how many cells of each state a node has, in words. */
export function cellsInWords(cells) {
  const words = Object.entries(CELL_STATES)
    .filter(([name]) => cells[name])
    .map(([name, state]) => `${cells[name]} ${state.words}`);
  return words.join(", ") || "no copies";
}

const SERVES = { RUNNING: "serves applications", BACKINGUP: "follows its upstream cluster" };

export const stateWords = (state) => SERVES[state] ?? "does not serve applications";

/** Return what may be lost. */
export function mayFail(status) {
  if (status.can_lose === null) return "the cluster does not serve";
  if (status.can_lose === 0) return "no storage node";
  return `any ${plural(status.can_lose, "storage node")}`;
}

/** Return the title of an operation, as neoctl shows it: without what only nodes need. */
export function operationTitle(row) {
  const values = Object.entries(row.arguments)
    .filter(([key, value]) => !HIDDEN.has(key) && value !== "" && value !== null && value !== false)
    .filter(([key]) => key !== "partitions" || row.kind === "partitions")
    .map(([key, value]) => (FORMS[key] ?? ((it) => nidOr(key, it)))(value));
  return ["Operation", `${row.id}:`, row.kind, ...values].join(" ");
}

const HIDDEN = new Set(["gains", "losses", "pack", "readers"]);
const FORMS = { full: () => "full", tid: (tid) => `as of 0x${tid}`, before: (count) => `instead of ${count}` };

const NODES = new Set(["old", "new", "node"]);
const nid = (number) => (Number.isInteger(number) && number > 0 ? `S${number}` : String(number));
const nidOr = (key, value) => {
  if (Array.isArray(value)) return value.map(nid).join(" ");
  return NODES.has(key) ? nid(value) : String(value);
};
