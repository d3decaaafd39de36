// Feeds: what went wrong first, then everything as it happens.
import { clock, digits } from "./charts.js";
import { $, icon, make } from "./dom.js";
import { language, lasting, t } from "./words.js";

/** Trouble older than this is told under activity only, in ms: a day. */
const TROUBLE_FOR = 86400000;

/** When it was: the time, and the date if it was on another day. */
function when(at) {
  const today = new Date(at).toDateString() === new Date(Date.now()).toDateString();
  const date = today ? "" : new Intl.DateTimeFormat(language(), { month: "short", day: "numeric" }).format(at);
  return [date, clock(at, true)].filter(Boolean).join(" ");
}

/** A field of a happening. What is absent is a dash. */
function written(value) {
  if (value === null || value === undefined) return "–";
  if (Array.isArray(value)) return value.join(", ") || "–";
  return typeof value === "number" && !Number.isInteger(value) ? digits(value, 1) : value;
}

/** The sentence of a happening; one this page does not know is named and shown as it is. */
export function sentence({ kind, body }) {
  const values = {};
  for (const [name, value] of Object.entries(body ?? {})) {
    values[name] = written(value);
  }
  if (kind === "turn.ended") values.outcome = t(`outcome.${body.outcome}`);
  if (kind === "governor.stepped") for (const end of ["from", "to"]) values[end] = t(`level.${body[end]}`);
  if (kind === "mood.changed") for (const end of ["from", "to"]) values[end] = t(body[end] === "none" ? "mood.nothing" : `mood.${body[end]}`);
  if (kind === "stress.left") values.time = lasting(body.lasted_s);
  if (kind === "idle.began") values.time = lasting(body.after_s);
  const text = t(`happened.${kind}`, values);
  return text === `happened.${kind}` ? `${kind} ${JSON.stringify(body)}` : text;
}

/** A row: when, how bad, what. */
export function happening(told) {
  return make("li", { class: "happening", "data-severity": told.severity, "data-kind": told.kind },
    make("time", { datetime: new Date(told.at_ms).toISOString() }, when(told.at_ms)),
    make("span", { class: "severity" }, t(`severity.${told.severity}`)), make("span", { class: "what" }, sentence(told)));
}

export class FeedsView {
  constructor(feed) {
    this.feed = feed;
    this.drawn = "";
    $("calm").prepend(icon("check"));
  }

  draw(again = false) {
    if ($("view-feeds").hidden) return;
    const { happenings, state, isOpen } = this.feed;
    const notices = state?.notices ?? [];
    // Rows are rebuilt only when there are others.
    const drawn = `${happenings.length} ${happenings.at(-1)?.id} ${notices.join("\n")} ${isOpen} ${language()}`;
    if (drawn === this.drawn && !again) return;
    this.drawn = drawn;
    const since = Date.now() - TROUBLE_FOR;
    const trouble = happenings.filter(({ severity, at_ms: at }) => severity !== "info" && at >= since)
      .sort((a, b) => (a.severity === "error" ? 0 : 1) - (b.severity === "error" ? 0 : 1) || b.id - a.id);
    const now = notices.map((text) => make("li", { class: "happening", "data-severity": "warn" },
      make("time", {}, t("now")), make("span", { class: "severity" }, t("severity.warn")), make("span", { class: "what" }, text)));
    $("trouble").replaceChildren(...now, ...trouble.map(happening));
    const calm = Boolean(state) && !now.length && !trouble.length;
    $("calm").hidden = !calm;
    $("view-feeds").dataset.calm = String(calm);
    $("activity").replaceChildren(...[...happenings].reverse().map(happening));
    $("activity-none").hidden = happenings.length > 0;
    $("live").textContent = t(isOpen ? "live" : "live.lost");
    $("live").dataset.open = String(isOpen);
  }
}
