// The conversation on the screen: turns, words as they come, what can be done with them.
//
// Only the turn that changed is touched, at most once a frame. The view stays at the bottom only
// while the person is there.
import { $, button, copy, icon, make, tell } from "./dom.js";
import * as markdown from "./markdown.js";
import { ago, fault, t } from "./words.js";

/** Distance from the bottom that still counts as being there, in pixels. */
const AT_BOTTOM = 32;

export class Thread {
  /** `on`: retry(text), again(entry), back(entry), earlier(). */
  constructor(on) {
    this.on = on;
    this.thread = $("thread");
    this.column = $("column");
    this.latest = $("latest");
    this.conversation = null;
    this.name = "crayfish";
    this.shown = new Map();
    this.dirty = new Set();
    this.planned = 0;
    this.stuck = true;
    this.thread.addEventListener("scroll", () => this.look(), { passive: true });
    this.latest.addEventListener("click", () => { this.toEnd(); $("text").focus(); });
    const sizes = new ResizeObserver(() => this.follow());
    sizes.observe(this.column);
    sizes.observe(this.thread);
    setInterval(() => this.tick(), 1000);
    markdown.load().then((done) => { if (done) this.rebuild(); });
  }

  look() {
    const { scrollHeight, scrollTop, clientHeight } = this.thread;
    this.stuck = scrollHeight - scrollTop - clientHeight <= AT_BOTTOM;
    this.latest.hidden = this.stuck;
  }

  follow() {
    if (this.stuck) this.thread.scrollTop = this.thread.scrollHeight;
    else this.look();
  }

  toEnd() {
    this.stuck = true;
    this.latest.hidden = true;
    this.follow();
  }

  open(conversation) {
    this.conversation = conversation;
    this.rebuild();
    this.toEnd();
  }

  rebuild() {
    this.shown.clear();
    this.column.replaceChildren();
    this.changed(this.conversation, null);
    this.paint();
  }

  changed(conversation, turn) {
    if (!conversation || conversation !== this.conversation) return;
    this.dirty.add(turn);
    this.planned ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    cancelAnimationFrame(this.planned);
    this.planned = 0;
    const all = this.dirty.has(null);
    if (all) this.arrange();
    else for (const turn of this.dirty) this.turn(turn);
    this.dirty.clear();
    this.follow();
  }

  /** All of it, reusing what is there. */
  arrange() {
    const { conversation } = this;
    const nodes = [];
    if (conversation.hasEarlier) nodes.push(this.earlier());
    const turns = conversation.ordered();
    turns.forEach((turn, index) => nodes.push(this.turn(turn, index === turns.length - 1)));
    for (const entry of conversation.outbox) nodes.push(this.entry(entry));
    if (!nodes.length && (conversation.loaded || !conversation.attached)) nodes.push(this.once("hello", () => this.hello()));
    const wanted = new Set(nodes);
    for (const [key, parts] of this.shown) if (!wanted.has(parts.node)) this.shown.delete(key);
    for (const child of [...this.column.children]) if (!wanted.has(child)) child.remove();
    nodes.forEach((node, index) => {
      if (this.column.children[index] !== node) this.column.insertBefore(node, this.column.children[index] ?? null);
    });
  }

  /** Leads to what was said before. It stays where it is while it is asked for, with its focus. */
  earlier() {
    const node = this.once("earlier", () => {
      const act = button(null, t("earlier"), { onclick: () => this.on.earlier() });
      return make("div", { class: "earlier" }, act);
    });
    const act = node.firstElementChild;
    const { asking } = this.conversation;
    act.setAttribute("aria-disabled", String(asking));
    act.firstElementChild.textContent = t(asking ? "earlier.asking" : "earlier");
    return node;
  }

  /** Lets `change` put turns in front of those on the screen, which stay where they are. */
  keepPlace(conversation, change) {
    if (conversation !== this.conversation) { change(); return; }
    const had = new Set(conversation.turns.keys());
    const focused = document.activeElement?.closest(".earlier") !== null;
    const fromBottom = this.thread.scrollHeight - this.thread.scrollTop;
    this.stuck = false;
    change();
    this.paint();
    this.thread.scrollTop = this.thread.scrollHeight - fromBottom;
    this.look();
    const fresh = conversation.ordered().filter((turn) => !had.has(turn.turn));
    tell(t("earlier.done", { n: fresh.length }));
    // At the beginning the button is gone: those who used it by key go on reading from there.
    if (focused && !conversation.hasEarlier && fresh.length) {
      const { node } = this.shown.get(`turn ${fresh[0].turn}`);
      node.tabIndex = -1;
      node.focus({ preventScroll: true });
    }
  }

  once(key, build) {
    if (!this.shown.has(key)) this.shown.set(key, { node: build() });
    return this.shown.get(key).node;
  }

  hello() {
    const mark = document.querySelector(".mark").src;
    return make("div", { class: "hello" }, make("img", { src: mark, alt: "", width: 72, height: 72 }),
      make("h2", {}, t("hello")), make("p", {}, t("hello.text")));
  }

  said(text) {
    // Of itself in its own direction; the words for those who listen say nothing of that.
    return make("div", { class: "bubble" }, make("span", { class: "heard" }, `${t("you")}: `), make("div", { dir: "auto" }, text));
  }

  /** A message on its way. */
  entry(entry) {
    const key = `entry ${entry.key}`;
    let parts = this.shown.get(key);
    if (!parts) {
      const state = make("div", { class: "state" });
      const said = make("div", { class: "said" }, this.said(entry.text), state);
      // As a turn looks that waits for its first word, so that nothing jumps when it becomes one.
      const breath = make("span", { class: "breath", "aria-hidden": "true" });
      const thinking = make("div", { class: "thinking" }, breath, make("span", {}, t("thinking")));
      const answer = make("div", { class: "answer" }, thinking, make("div", { class: "foot" }));
      parts = { node: make("section", { class: "turn" }, said, answer), said, answer, state, told: "" };
      this.shown.set(key, parts);
    }
    const { conversation } = this;
    const going = conversation.attached && (entry.state === "sent" || (entry.state === "kept" && !conversation.isBusy));
    const told = going ? "going" : entry.state === "refused" ? t("refused", { why: fault(entry.code, entry.why) })
      : t(conversation.attached ? "kept.turn" : "kept");
    if (parts.told !== told) {
      parts.told = told;
      parts.answer.hidden = !going;
      parts.state.hidden = going;
      if (going) delete parts.said.dataset.kept;
      else parts.said.dataset.kept = "true";
      parts.state.replaceChildren(make("span", {}, told));
      if (entry.state === "refused") parts.state.append(button("retry", t("again"), { onclick: () => this.on.again(entry) }));
      if (!going) parts.state.append(button(null, t("discard"), { onclick: () => this.on.back(entry) }));
    }
    return parts.node;
  }

  turn(turn, isLast = turn.turn === this.conversation.last) {
    const key = `turn ${turn.turn}`;
    let parts = this.shown.get(key);
    if (!parts) {
      parts = this.build(turn);
      this.shown.set(key, parts);
    }
    if (turn.said !== null && parts.text !== turn.said) {
      parts.text = turn.said;
      parts.said.replaceChildren(this.said(turn.said));
      parts.said.hidden = false;
      parts.said.title = turn.saidAt ? new Date(turn.saidAt).toLocaleString() : "";
    }
    this.words(parts, turn);
    this.foot(parts, turn, isLast);
    return parts.node;
  }

  build(turn) {
    const parts = {
      said: make("div", { class: "said", hidden: true }), words: make("div", { class: "words", dir: "auto" }),
      under: make("div"), foot: make("div", { class: "foot" }), text: null, footing: null, ending: null,
    };
    const heading = make("h2", { class: "heard" }, t("agent", { name: this.name }));
    parts.answer = make("div", { class: "answer" }, heading, parts.words, parts.under, parts.foot);
    parts.node = make("section", { class: "turn", "data-turn": turn.turn }, parts.said, parts.answer);
    return parts;
  }

  words(parts, turn) {
    const running = turn.outcome === "running";
    if (turn.answer) {
      if (parts.told !== turn.answer || parts.running !== running) markdown.show(parts.words, turn.answer, !running);
      parts.told = turn.answer;
      parts.running = running;
    }
    parts.words.hidden = !turn.answer;
    parts.node.dataset.outcome = turn.outcome;
    const ending = running && !turn.answer ? "thinking" : `${turn.outcome} ${turn.words ?? ""}`;
    if (ending === parts.ending) return;
    parts.ending = ending;
    parts.under.replaceChildren(...this.ending(parts, turn, running));
  }

  ending(parts, turn, running) {
    parts.clock = null;
    if (running) {
      if (turn.answer) return [];
      parts.clock = make("span", {}, this.waiting(turn));
      return [make("div", { class: "thinking" }, make("span", { class: "breath", "aria-hidden": "true" }), parts.clock)];
    }
    if (turn.outcome === "cancelled") return [make("p", { class: "ended" }, t("cancelled"))];
    if (turn.words) return [make("div", { class: "fault" }, icon("warn"), make("p", {}, fault(turn.code, turn.words)))];
    if (turn.outcome === "interrupted" || turn.outcome === "error") return [make("p", { class: "ended" }, t("interrupted"))];
    return turn.answer ? [] : [make("p", { class: "ended" }, t("empty"))];
  }

  waiting(turn) {
    if (!turn.about) return t("thinking");
    const left = Math.ceil(turn.about - (Date.now() - turn.since) / 1000);
    return left > 0 ? t("thinking.about", { n: left }) : t("thinking.longer");
  }

  tick() {
    const live = this.conversation?.live;
    const parts = live && this.shown.get(`turn ${live}`);
    if (parts?.clock) parts.clock.textContent = this.waiting(this.conversation.turns.get(live));
  }

  /** The line under an answer. It has its height while the answer streams, so that nothing jumps. */
  foot(parts, turn, isLast) {
    const ended = turn.outcome !== "running";
    const footing = ended ? `${isLast} ${turn.answer ? 1 : 0} ${turn.backend ?? ""} ${turn.elapsed_ms ?? ""}` : "";
    if (footing === parts.footing) return;
    parts.footing = footing;
    if (!ended) { parts.foot.replaceChildren(); return; }
    const acts = [];
    if (turn.answer) acts.push(this.copies(turn));
    if (isLast && turn.said) acts.push(button("retry", t("retry"), { onclick: () => this.on.retry(turn.said), class: "retry" }));
    const who = this.who(turn);
    parts.foot.replaceChildren(...acts);
    if (who) parts.foot.append(make("span", { class: "who" }, ...who));
  }

  who(turn) {
    const reserve = turn.backend === "reserve" ? t("chip.reserve") : turn.backend;
    const model = turn.backend === "offline" ? "" : turn.model;
    const parts = [];
    const add = (text, attributes) => {
      if (text) parts.push(make("span", attributes, parts.length ? ` · ${text}` : text));
    };
    add(reserve, {});
    add(model, { class: "model" });
    add(turn.cut ? t("cut") : "", {});
    add(turn.clipped ? t("clipped") : "", {});
    if (turn.elapsed_ms !== undefined) add(t("seconds", { n: (turn.elapsed_ms / 1000).toFixed(1) }), { "data-varies": "" });
    else if (!parts.length && turn.endedAt) parts.push(make("time", { "data-varies": "" }, ago(turn.endedAt)));
    return parts.length ? parts : null;
  }

  copies(turn) {
    const act = button("copy", t("copy"), {
      class: "copy",
      onclick: async () => {
        const key = (await copy(turn.answer)) ? "copied" : "copy.failed";
        act.replaceChildren(icon(key === "copied" ? "check" : "warn"), make("span", {}, t(key)));
        tell(t(key));
        setTimeout(() => act.replaceChildren(icon("copy"), make("span", {}, t("copy"))), 1800);
      },
    });
    return act;
  }

  /** Reads a finished answer to those who listen: once, whole, without the marks of Markdown. */
  announce(turn) {
    this.paint();
    const parts = this.shown.get(`turn ${turn.turn}`);
    const shown = turn.answer ? parts?.words.innerText ?? turn.answer : "";
    const text = [shown, turn.words ?? "", turn.outcome === "cancelled" ? t("cancelled") : ""].filter(Boolean).join(" ");
    tell(t("said.done", { name: this.name, text }), "said");
  }
}
