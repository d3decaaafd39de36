// The page: puts the parts together. Frames come in at one place, commands go out at one place.
import { BodyView } from "./body.js";
import { Composer } from "./composer.js";
import { Conversation, newId } from "./conversation.js";
import { $, icon, tell } from "./dom.js";
import { Door, Unauthorised, request } from "./door.js";
import { Feed } from "./feed.js";
import { FeedsView } from "./feeds.js";
import { forget, read, write } from "./kept.js";
import { MindView } from "./mind.js";
import { Sessions } from "./sessions.js";
import { State } from "./state.js";
import { Thread } from "./thread.js";
import { Views } from "./views.js";
import { fill, language, t } from "./words.js";

/** Lines asked for when a conversation is opened. */
const LINES = 200;
/** How often the page looks at its own clock, in ms: the age of the last beat. Nothing is asked. */
const TICK = 1000;

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
const feed = new Feed(heard);
const boards = { body: new BodyView(feed), mind: new MindView(feed), feeds: new FeedsView(feed) };
const views = new Views(["talk", ...Object.keys(boards)], {
  talk: (id) => { if (id !== current.id || views.shown !== "talk") open(id); },
  shown,
});
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
  views.talk(id);
  attach(current);
  thread.open(current);
  composer.open(id);
  composer.state(current.isBusy, state.isAway);
  sessions.draw();
}

/** Another view is on the screen. */
function shown(name) {
  sessions.heading = name === "talk" ? "" : t(`view.${name}`);
  sessions.draw();
  boards[name]?.draw();
}

/** The feed has something new. What it says of the house stands above every view. */
function heard({ news = null, fault = false } = {}) {
  if (news) state.heard(news);
  // The state is told with each beat; who answers after a fault is worth knowing at once.
  if (fault) door.send({ type: "status" });
  boards[views.shown]?.draw();
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
  feed.open();
}

function away(retryAt) {
  feed.close();
  state.away(retryAt);
  for (const each of conversations.values()) if (each.attached) each.detach();
  composer.state(false, true);
}

function frame(frame) {
  if (frame.event === "status") {
    feed.renew(frame.status);
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
  boards[views.shown]?.draw();
});

// Charts are painted: they change their colours only when they are told to.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => boards[views.shown]?.draw());

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
  shown(views.shown);
}

// Keys.

// Its address would be that of a conversation called "text".
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  if (views.shown !== "talk") open(current.id);
  $("text").focus();
});

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

// Begins.

for (const node of document.querySelectorAll("[data-i]")) node.prepend(icon(node.dataset.i));
fill();
dress();
const { asked } = views;
open(views.conversation ?? read("session") ?? "main");
if (asked) {
  history.replaceState(null, "", `#/${asked}`);
  views.follow();
}
const first = () => { if (views.shown === "talk" && document.activeElement === document.body) $("text").focus(); };
first();
// A page whose style is not there yet takes no focus.
requestAnimationFrame(first);
document.documentElement.dataset.ready = "yes";
performance.mark("interactive");
door.connect();
setInterval(() => { if (views.shown === "body" && !document.hidden) boards.body.beat(); }, TICK);
