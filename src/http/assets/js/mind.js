// Mind: the mood, who thinks and how fast, and what the last turns came to.
import { clock, digits } from "./charts.js";
import { $, make } from "./dom.js";
import { language, t } from "./words.js";

const CHANNELS = ["joy", "calm", "excitement", "sorrow", "anger"];
/** Turns shown. */
const TURNS_MAX = 20;

const present = (value) => value !== null && value !== undefined;

/** Milliseconds as seconds where they are many. */
const time = (ms) => (!present(ms) ? "–" : ms < 1000 ? `${digits(ms)} ms` : `${digits(ms / 1000, 1)} s`);

/** The figures of a backend: key, what is written, or null with its reason in `absent.KEY`. */
function figures(backend) {
  const rate = (value) => (present(value) ? t("rate", { n: digits(value, 1) }) : null);
  const ms = (value) => (present(value) ? time(value) : null);
  const part = backend.prompt_tokens ? backend.cached_tokens / backend.prompt_tokens : null;
  return [
    ["lease", backend.waiting ? t("lease.waiting", { n: backend.waiting }) : t(backend.busy ? "lease.held" : "lease.free"), ""],
    ["prefix", part === null ? null : `${digits(100 * part)} %`, t("prefix.of", { n: digits(backend.prompt_tokens) })],
    ["head", ms(backend.head_ms), ""],
    ["first", ms(backend.first_token_ms), ""],
    ["gap", ms(backend.gap_p50_ms), present(backend.gap_p99_ms) ? t("gap.most", { n: time(backend.gap_p99_ms) }) : ""],
    ["rate", rate(backend.tokens_per_s), present(backend.healthy_tokens_per_s) ? t("rate.well", { n: digits(backend.healthy_tokens_per_s, 1) }) : ""],
  ];
}

export class MindView {
  constructor(feed) {
    this.feed = feed;
    this.channels = new Map(CHANNELS.map((name) => [name, {
      name: make("dt"), bar: make("div", { class: "meter", role: "meter", "aria-valuemin": 0, "aria-valuemax": 1 }, make("i")), value: make("span", { class: "value" }),
    }]));
    $("mood").append(...[...this.channels].map(([name, { name: label, bar, value }]) =>
      make("div", { "data-channel": name }, label, make("dd", {}, bar, value))));
  }

  draw() {
    if ($("view-mind").hidden || !this.feed.state) return;
    this.mood(this.feed.state.body.mood);
    this.backends(this.feed.state);
    this.turns(this.feed.happenings.filter(({ kind }) => kind === "turn.ended").slice(-TURNS_MAX).reverse());
  }

  mood(mood) {
    $("mood").hidden = !mood;
    const calm = mood && mood.active_channel === "none";
    $("mood-words").textContent = !mood ? t("mood.none")
      : calm ? t("mood.level", { channel: t(`mood.${mood.dominant}`) }) : t("mood.active", { channel: t(`mood.${mood.active_channel}`) });
    if (!mood) return;
    for (const [name, { name: label, bar, value }] of this.channels) {
      label.textContent = t(`mood.${name}`);
      bar.firstChild.style.width = `${100 * mood[name]}%`;
      bar.setAttribute("aria-valuenow", mood[name].toFixed(2));
      bar.setAttribute("aria-label", t(`mood.${name}`));
      value.textContent = digits(mood[name], 2);
    }
  }

  backends({ backends, active_backend: active }) {
    const speaks = (backend) => backend.name === active;
    $("minds").replaceChildren(...backends.map((backend) => {
      const ready = backend.breaker === "closed" && (speaks(backend) || !backend.last_error);
      const state = [t(`about.${backend.slot}`), speaks(backend) ? t("about.speaks") : ready ? t("about.closed") : t("about.open")];
      const rows = figures(backend).map(([key, value, note]) => make("div", { class: "tile", "data-figure": key, "data-absent": String(value === null) },
        make("dt", {}, t(`figure.${key}`)), make("dd", { class: "value" }, value ?? "–"), make("dd", { class: "note" }, value === null ? t("absent.figure") : note)));
      return make("article", { class: "mind", "data-backend": backend.name, "data-state": ready ? "good" : "bad" },
        make("h4", {}, make("span", { class: "dot", "aria-hidden": "true" }), make("span", {}, `${backend.name} · ${backend.model}`)),
        make("p", { class: "note" }, state.join(" · "), !ready && backend.last_error ? `. ${backend.last_error}` : ""),
        make("dl", { class: "tiles" }, ...rows));
    }));
  }

  turns(turns) {
    const running = this.feed.state.turns;
    $("turns-now").textContent = running ? t("turns.now", { n: running }) : "";
    $("turns-none").hidden = turns.length > 0;
    $("turns").hidden = !turns.length;
    const longest = Math.max(1, ...turns.map(({ body }) => body.elapsed_ms ?? 0));
    $("turns").tBodies[0].replaceChildren(...turns.map(({ at_ms: at, body }) => this.turn(at, body, longest)));
  }

  turn(at, body, longest) {
    const { first_word_ms: first, elapsed_ms: all, tokens, prompt_tokens: prompt } = body;
    const speaking = present(first) && present(all) ? all - first : null;
    const wide = (ms) => `${(100 * (ms ?? 0)) / longest}%`;
    const [waits, speaks] = [make("i", { class: "waits" }), make("i", { class: "speaks" })];
    waits.style.width = wide(first ?? all);
    speaks.style.width = wide(speaking);
    const cell = (value, attributes) => make("td", attributes, value);
    return make("tr", { "data-outcome": body.outcome },
      cell(clock(at)), cell(t(`outcome.${body.outcome}`)), cell(body.backend ?? "–"),
      cell(time(first), { class: "number" }), cell(time(speaking), { class: "number" }), cell(time(all), { class: "number" }),
      make("td", { class: "stages", "aria-hidden": "true", lang: language() }, make("div", {}, waits, speaks)),
      cell(present(prompt) ? digits(prompt) : "–", { class: "number" }), cell(present(tokens) ? digits(tokens) : "–", { class: "number" }));
  }
}
