// Signing in, and the commands of those who are signed in: each is shown before it is executed.

import { byId, h } from "./dom.js";
import { moment } from "./words.js";

/** A command waits for storage nodes, each for some seconds. */
const TIMEOUT_MS = 60000;
/** A session ends by itself; the page says so within this time. */
const REFRESH_MS = 60000;

const ACTIONS = {
  abort: { button: "Abort…", title: (id) => `Abort operation ${id}?`, yes: "Abort the operation" },
  end: { button: "End…", title: (ttid) => `End transaction ${ttid}?`, yes: "End the transaction" },
  tweak: { button: "Balance the partitions…", title: () => "Balance the partitions?", yes: "Balance the partitions" },
};

let session = { name: null, token: null, closed: null };
let changed = () => {};

export const signedIn = () => session.name !== null;

/** Learn who is signed in, and call `listener` whenever that changes. */
export function startSession(listener) {
  changed = listener;
  byId("dialog").addEventListener("close", returnFocus);
  refresh();
  setInterval(() => { if (signedIn() && !document.hidden) refresh(); }, REFRESH_MS);
}

/** Return a button for a command, null if nobody is signed in. */
export function commandButton(action, subject = "") {
  if (!signedIn()) return null;
  const what = subject ? `${action} ${subject}` : null;
  return h("button", {
    type: "button", "data-key": `do ${action} ${subject}`, "aria-label": what && `${ACTIONS[action].button} (${what})`,
    onclick: () => prepare(action, subject),
  }, ACTIONS[action].button);
}

async function ask(path, body) {
  const post = body && {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-NEO-Token": session.token ?? "" },
    body: JSON.stringify(body),
  };
  const response = await fetch(`api/${path}`, { cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS), ...post });
  const data = await response.json();
  if (response.status === 401) take({ ...session, name: null, token: null });
  if (!response.ok) throw new Error([data.error.message, data.error.hint].filter(Boolean).join(" – "));
  return data;
}

async function refresh() {
  try {
    take(await ask("session"));
  } catch {
    // The page says already that the admin node does not answer.
  }
}

function take(found) {
  const before = session;
  session = found;
  if (before.name !== session.name || before.closed !== session.closed) {
    byId("session").replaceChildren(...renderSession());
    changed();
  }
}

function renderSession() {
  if (signedIn()) {
    return [h("span", { id: "who" }, `signed in: ${session.name}`), " ",
      h("button", { type: "button", "data-key": "sign out", onclick: signOut }, "Sign out")];
  }
  if (session.closed) return [h("span", { class: "note", title: session.closed }, "read-only")];
  return [h("button", { type: "button", "data-key": "sign in", onclick: openSignIn }, "Sign in…")];
}

async function signOut() {
  try {
    take({ ...session, ...await ask("sign-out", {}) });
  } catch (error) {
    open("Sign out", [failure(error), buttons(closeButton("Close"))]);
  }
}

// -- the dialog -------------------------------------------------------------------------------------

let opener = null;

function open(title, children) {
  const dialog = byId("dialog");
  dialog.replaceChildren(h("h2", { id: "dialog-title" }, title), ...children);
  if (!dialog.open) {
    opener = document.activeElement?.dataset.key ?? null;
    dialog.showModal();
  }
  dialog.querySelector("[data-first]")?.focus();
}

/** Give the focus back, also if the page has changed meanwhile. */
function returnFocus() {
  byId("dialog").replaceChildren();
  const back = opener && document.querySelector(`[data-key="${CSS.escape(opener)}"]`);
  (back || byId("session").querySelector("button") || byId("problems")).focus();
}

const closeButton = (words) =>
  h("button", { type: "button", "data-first": true, onclick: () => byId("dialog").close() }, words);
const buttons = (...found) => h("p", { class: "buttons" }, found);
const failure = (error) => h("p", { role: "alert", class: "failed" }, error?.name === "TimeoutError"
  ? "The admin node does not answer. Look at its log before you try again." : error?.message ?? "");

function openSignIn() {
  const said = h("div", {});
  const field = (name, label, type, complete) => h("p", {}, h("label", { for: name }, label), h("input", {
    id: name, type, autocomplete: complete, required: true, maxlength: 200, autocapitalize: "none", "data-first": name === "name",
  }));
  const send = h("button", { type: "submit", class: "yes" }, "Sign in");
  const form = h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      send.disabled = true;
      try {
        take({ ...session, ...await ask("sign-in", { name: byId("name").value, password: byId("password").value }) });
        byId("dialog").close();
      } catch (error) {
        said.replaceChildren(failure(error));
        byId("password").value = "";
        byId("password").focus();
      }
      send.disabled = false;
    },
  }, field("name", "Name", "text", "username"), field("password", "Password", "password", "current-password"), said,
  buttons(send, h("button", { type: "button", onclick: () => byId("dialog").close() }, "Cancel")));
  open("Sign in", [form]);
}

/** Show what a command will do. */
async function prepare(action, subject) {
  const { title, yes } = ACTIONS[action];
  open(title(subject), [h("p", { role: "status" }, "Looking what will happen …"), buttons(closeButton("Cancel"))]);
  let shown;
  try {
    shown = await ask("preview", { action, subject });
  } catch (error) {
    if (byId("dialog").open) open(title(subject), [failure(error), buttons(closeButton("Close"))]);
    return;
  }
  if (!byId("dialog").open) return;
  const go = h("button", { type: "button", class: "yes", onclick: () => execute(action, subject, shown) }, yes);
  open(title(subject), [
    h("p", {}, shown.will),
    output("What neoctl says about it", shown.text),
    h("p", { class: "note" }, "The same in a shell: ", h("code", {}, shown.command)),
    buttons(go, closeButton("Cancel")),
  ]);
}

async function execute(action, subject, { command, seal }) {
  const { title } = ACTIONS[action];
  open(title(subject), [h("p", { role: "status" }, "The cluster is told …")]);
  let found;
  try {
    const { text, name } = await ask("execute", { action, subject, seal });
    found = [
      h("p", { role: "status", class: "good" }, "Done."),
      output("What the cluster says", text || "(nothing)"),
      h("p", { class: "note" }, `${moment(Date.now() / 1000)}, ${name}: `, h("code", {}, command), "; the log of the admin node has it."),
    ];
  } catch (error) {
    found = [failure(error)];
  }
  open(title(subject).replace("?", ""), [...found, buttons(closeButton("Close"))]);
}

const output = (label, text) => h("pre", { tabindex: "0", role: "region", "aria-label": label }, text);
