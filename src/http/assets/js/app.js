// The page: puts the parts together. Frames come in at one place, commands go out at one place.
import { Composer } from "./composer.js";
import { Conversation, newId } from "./conversation.js";
import { $, icon, tell } from "./dom.js";
import { Door, Unauthorised, request } from "./door.js";
import { forget, read, write } from "./kept.js";
import { Sessions } from "./sessions.js";
import { State } from "./state.js";
import { Thread } from "./thread.js";
import { fill, language, t } from "./words.js";

/** Lines asked for when a conversation is opened. */
const LINES = 200;
/** How often the state is asked for while nothing happens, in ms. */
const STATUS_EVERY = 20000;

/** The set of files that this page is made of. */
const ASSETS = new URL(import.meta.url).pathname.split("/")[2];

const conversations = new Map();
let current = null;

const state = new State({ now: () => door.now() });
const thread = new Thread({
  retry: (text) => say(text),
  again: (entry) => { current.sendAgain(entry); pump(); },
  back: (entry) => composer.put(current.takeBack(entry)),
  earlier,
});
const composer = new Composer({ say, stop });
const sessions = new Sessions({
  open: (id) => { open(id); $("text").focus(); },
  fresh: () => { open(newChat()); $("text").focus(); },
  gone,
  failed,
});
const door = new Door({ open: opened, frame, away, unauthorised: askToken }, () => sessions.refresh());

const newChat = () => `web-${newId()}`;

function conversation(id) {
  if (!conversations.has(id)) conversations.set(id, new Conversation(id, changed));
  return conversations.get(id);
}

function changed(about, turn) {
  thread.changed(about, turn);
  if (about === current) composer.state(about.isBusy, state.isAway);
}

/** Makes a conversation the one on the screen. */
function open(id) {
  current = conversation(id);
  sessions.current = id;
  write("session", id);
  if (location.hash.slice(1) !== id) history.replaceState(null, "", `#${id}`);
  attach(current);
  thread.open(current);
  composer.open(id);
  composer.state(current.isBusy, state.isAway);
  sessions.draw();
}

function attach(which) {
  if (which.attached || !door.isOpen) return;
  which.attach();
  door.send({ type: "attach", chat_id: which.id, history: LINES });
  door.after(() => {
    which.settle();
    pump();
  });
}

function say(text) {
  thread.toEnd();
  current.say(text);
  pump();
}

/** Sends what waits, in every conversation: a draft sent and left behind goes out too. */
function pump() {
  for (const each of conversations.values()) {
    if (!each.outbox.length) continue;
    attach(each);
    const next = each.next();
    if (next) door.send({ type: "message", chat_id: each.id, content: next.text, id: next.id });
  }
}

/** Asks for what was said before what is here. */
async function earlier() {
  const about = current;
  if (about.asking) return;
  about.asking = true;
  changed(about, null);
  try {
    const query = `session=${encodeURIComponent(about.id)}&before=${about.earliest}&limit=${LINES}`;
    const { turns } = await request("GET", `/history?${query}`);
    thread.keepPlace(about, () => {
      about.asking = false;
      if (turns.length) about.read(turns);
      else about.begins = about.earliest;
    });
  } catch (error) {
    failed(error);
  }
  about.asking = false;
  changed(about, null);
}

function stop() {
  if (!current.isBusy) return false;
  door.send({ type: "cancel", chat_id: current.id });
  return true;
}

function gone(id) {
  for (const name of ["draft", "outbox"]) write(`${name}.${id}`, null);
  conversations.delete(id);
  if (current.id === id) open(sessions.list[0]?.chat_id ?? newChat());
}

function failed(error) {
  if (error instanceof Unauthorised) askToken();
  else state.failed(t("failed.list", { why: error.message }));
}

function opened(ready) {
  state.renewed = ready.assets !== ASSETS;
  state.back();
  thread.name = ready.designation || "crayfish";
  $("name").textContent = thread.name;
  $("forget").hidden = !read("token");
  for (const each of conversations.values()) each.attached = each.loaded = false;
  attach(current);
  pump();
  door.send({ type: "status" });
}

function away(retryAt) {
  state.away(retryAt);
  for (const each of conversations.values()) if (each.attached) each.detach();
  composer.state(false, true);
}

function frame(frame) {
  if (frame.event === "status") {
    state.heard(frame.status);
    return;
  }
  if (frame.event === "session_updated") {
    refreshSoon();
    return;
  }
  if (frame.event === "session_deleted") {
    gone(frame.chat_id);
    refreshSoon();
    return;
  }
  const about = frame.chat_id ? conversations.get(frame.chat_id) : current;
  if (!about) return;
  switch (frame.event) {
    case "taken":
      about.taken(frame);
      if (!frame.again) refreshSoon();
      break;
    case "snapshot":
      about.snapshot(frame);
      break;
    case "history":
      about.history(frame.turns);
      break;
    case "error":
      if (frame.turn === undefined) {
        if (!about.refused(frame)) state.failed(frame.detail);
        break;
      }
    // falls through: a turn that failed is a turn that ended
    default: {
      const known = about.last;
      const ended = about.frame(frame);
      if (about.last !== known) refreshSoon();
      if (ended) finished(about, ended);
    }
  }
}

function finished(about, turn) {
  changed(about, null);
  if (about === current) thread.announce(turn);
  state.failed("");
  door.send({ type: "status" });
  refreshSoon();
  pump();
}

let refreshing = 0;
function refreshSoon() {
  clearTimeout(refreshing);
  refreshing = setTimeout(() => sessions.refresh().catch((error) => { if (error instanceof Unauthorised) askToken(); }), 150);
}

// The token.

function askToken() {
  const sheet = $("token");
  $("token-wrong").textContent = read("token") ? t("token.wrong") : "";
  $("token-value").value = "";
  if (!sheet.open) sheet.showModal();
  $("token-value").focus();
}

$("token").addEventListener("close", () => {
  const { returnValue } = $("token");
  const value = $("token-value").value.trim();
  if (returnValue === "enter" && value) write("token", value);
  door.again();
});
$("token").addEventListener("cancel", (event) => event.preventDefault());
for (const id of ["forget", "token-forget"]) $(id).addEventListener("click", forgetDevice);

function forgetDevice() {
  door.drop();
  forget();
  location.replace("/");
}

// Choices.

function dress() {
  const theme = document.documentElement.dataset.theme ?? "system";
  const now = t(`theme.${theme}`);
  $("theme").lastElementChild.textContent = now;
  $("theme").setAttribute("aria-label", t("theme.label", { now }));
  $("language").lastElementChild.textContent = t("language.next");
  $("language").lastElementChild.lang = language() === "zh" ? "en" : "zh";
  $("language").setAttribute("aria-label", t("language.label"));
}

$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const order = ["system", "light", "dark"];
  const next = order[(order.indexOf(root.dataset.theme ?? "system") + 1) % order.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  write("theme", next === "system" ? null : next);
  dress();
});

$("language").addEventListener("click", () => {
  document.documentElement.lang = language() === "zh" ? "en" : "zh";
  write("language", document.documentElement.lang);
  translate();
});

function translate() {
  fill();
  dress();
  sessions.draw();
  sessions.said();
  state.draw();
  composer.look();
  if (current) thread.rebuild();
}

// Keys.

document.addEventListener("keydown", (event) => {
  const modal = document.querySelector("dialog[open]");
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !modal) {
    event.preventDefault();
    sessions.summon();
  } else if (event.key === "Escape" && !modal && !event.defaultPrevented) {
    if (sessions.close(true)) return;
    if (stop()) tell(t("cancelled"));
  }
});
addEventListener("hashchange", () => {
  const id = location.hash.slice(1);
  if (/^[A-Za-z0-9_:-]{1,64}$/.test(id) && id !== current.id) open(id);
});

// Begins.

for (const node of document.querySelectorAll("[data-i]")) node.prepend(icon(node.dataset.i));
fill();
dress();
const asked = location.hash.slice(1) || read("session") || "main";
open(/^[A-Za-z0-9_:-]{1,64}$/.test(asked) ? asked : "main");
const first = () => { if (document.activeElement === document.body) $("text").focus(); };
first();
// A page whose style is not there yet takes no focus.
requestAnimationFrame(first);
document.documentElement.dataset.ready = "yes";
performance.mark("interactive");
door.connect();
setInterval(() => { if (!document.hidden) door.send({ type: "status" }); }, STATUS_EVERY);
