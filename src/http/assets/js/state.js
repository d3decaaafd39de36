// What is true of the house: who speaks, what is degraded, whether there is a connection.
import { $, button, icon, make, tell } from "./dom.js";
import { language, lasting, t } from "./words.js";

/** A connection that is back within this time was never worth a word, in ms. */
const AWAY_SHOWN_AFTER = 1200;

export class State {
  /** `on`: now(). */
  constructor(on) {
    this.on = on;
    this.status = null;
    this.awaySince = 0;
    this.retryAt = 0;
    this.shownAway = false;
    this.trouble = "";
    /** Whether the daemon has newer files than this page is made of. */
    this.renewed = false;
    $("chip").addEventListener("click", () => { this.about(); $("about").showModal(); });
    setInterval(() => { if (this.awaySince) this.draw(); }, 500);
  }

  heard(status) {
    this.status = status;
    this.draw();
    if ($("about").open) this.about();
  }

  away(retryAt) {
    this.awaySince ||= Date.now();
    this.retryAt = retryAt;
    this.draw();
  }

  back() {
    if (this.shownAway) tell(t("online"));
    this.awaySince = 0;
    this.shownAway = false;
    this.draw();
  }

  /** Something the person asked for did not work. Shown until the next thing works. */
  failed(why) {
    this.trouble = why;
    this.draw();
  }

  get isAway() { return this.awaySince > 0; }

  speaker() {
    return this.status?.backends.find((backend) => backend.name === this.status.active_backend);
  }

  draw() {
    const { status } = this;
    const speaker = this.speaker();
    let [state, text, model] = ["unknown", "", ""];
    if (this.isAway) [state, text] = ["bad", t("chip.away")];
    else if (status && (!status.online || !speaker)) [state, text] = ["bad", t("chip.offline")];
    else if (speaker) {
      const spare = speaker.slot !== "primary";
      [state, text] = [spare ? "spare" : "good", speaker.name];
      if (speaker.name === "reserve") text = t("chip.reserve");
      else model = `· ${speaker.model}`;
    }
    $("chip").dataset.state = state;
    $("chip-name").textContent = text;
    $("chip-model").textContent = model;
    $("chip").hidden = !text;
    this.notices(speaker);
  }

  notices(speaker) {
    const texts = [];
    const long = this.isAway && Date.now() - this.awaySince > AWAY_SHOWN_AFTER;
    if (long) {
      const s = Math.max(0, Math.ceil((this.retryAt - Date.now()) / 1000));
      texts.push(["away", s > 1 ? t("away.in", { n: s }) : t("away")]);
      this.shownAway = true;
    } else if (!this.isAway && this.status) {
      if (!this.status.online) texts.push(["offline", t("offline")]);
      else if (speaker?.name === "reserve") texts.push(["reserve", t("reserve")]);
      for (const notice of this.status.notices) texts.push(["notice", notice]);
    }
    if (this.renewed && !this.isAway) texts.push(["renewed", t("renewed")]);
    if (this.trouble) texts.push(["trouble", this.trouble]);
    const old = [...$("notices").children];
    texts.forEach(([kind, text], index) => {
      const there = old[index];
      if (there?.dataset.kind === kind && there.dataset.language === language()) {
        const words = there.querySelector("span");
        if (words.textContent !== text) words.textContent = text;
        return;
      }
      const act = kind === "away" ? button(null, t("away.now"), { onclick: () => this.on.now() })
        : kind === "renewed" ? button(null, t("renewed.now"), { onclick: () => location.reload() })
        : kind === "trouble" ? button(null, t("close"), { onclick: () => this.failed("") }) : null;
      const node = make("div", { class: "notice", "data-kind": kind, "data-language": language() }, icon("warn"), make("span", {}, text), act);
      if (there) there.replaceWith(node);
      else $("notices").append(node);
    });
    old.slice(texts.length).forEach((node) => node.remove());
  }

  about() {
    const { status } = this;
    if (!status || this.isAway) {
      $("about-body").replaceChildren(make("p", {}, t("about.nothing")));
      return;
    }
    const rows = status.backends.map((backend) => {
      const speaks = backend.name === status.active_backend;
      // A server without its model is reachable and of no use.
      const closed = backend.breaker === "closed";
      const ready = closed && (speaks || !backend.last_error);
      const facts = [
        t(`about.${backend.slot}`), speaks ? t("about.speaks") : closed && !ready ? "" : t(`about.${backend.breaker}`),
        backend.retry_in_s ? t("about.retry", { n: Math.ceil(backend.retry_in_s) }) : "",
        backend.degraded ? t("about.degraded") : "",
        backend.tokens_per_s ? t("about.rate", { n: backend.tokens_per_s.toFixed(1) }) : "",
      ].filter(Boolean).join(" · ");
      return make("div", { class: "backend", "data-state": ready ? "good" : "bad" },
        make("span", { class: "dot", "aria-hidden": "true" }), make("b", {}, `${backend.name} · ${backend.model}`),
        make("small", {}, facts), !ready && backend.last_error ? make("small", {}, backend.last_error) : null);
    });
    const foot = make("p", { class: "about-foot", "data-varies": "" },
      t("about.version", { version: status.version, time: lasting(status.uptime_s) }));
    $("about-body").replaceChildren(...rows, foot);
  }
}
