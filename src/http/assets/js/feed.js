// What happens and what is true, as the daemon tells it (`GET /events`). A stream that was lost
// goes on after the last happening that came, so nothing is missed; a page that nobody looks at
// reads nothing. Read with `fetch`: a browser's own reader of events cannot send the token.
import { read } from "./kept.js";

/** Pause before the next try while the daemon answers otherwise, in ms. */
const PAUSE = 2000;
/** Happenings kept for the views: more than the daemon tells one who asks for the first time. */
const KEPT = 200;
/** Beats kept for the charts, as many as the daemon keeps. */
const BEATS = 60;

export class Feed {
  /** `changed({ news, fault })`: something is different now; `news` is a state that is new,
   *  `fault` whether a fault came or went since it was told. */
  constructor(changed) {
    this.changed = changed;
    this.state = null;
    this.beats = [];
    /** Newest last. */
    this.happenings = [];
    this.isOpen = false;
    this.lostAt = 0;
    /** When the newest beat was, by this device's clock, in ms. */
    this.beatAt = 0;
    this.last = null;
    this.wanted = false;
    this.running = null;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.stop();
      else this.look();
    });
  }

  /** The daemon is there: reads from now on. */
  open() {
    this.wanted = true;
    this.start();
  }

  /** The daemon is gone; `open` says when it is back. */
  close() {
    this.wanted = false;
    this.stop();
  }

  /** Somebody looks again: what was not read meanwhile was not lost. */
  look() {
    if (!this.isOpen) this.lostAt = Date.now();
    this.start();
  }

  start() {
    if (!this.wanted || this.running || document.hidden) return;
    clearTimeout(this.timer);
    const running = new AbortController();
    this.running = running;
    this.read(running.signal).catch(() => { /* said by what follows */ }).finally(() => {
      if (this.running !== running) return;
      this.stop();
      this.timer = setTimeout(() => this.start(), PAUSE);
    });
  }

  stop() {
    clearTimeout(this.timer);
    this.running?.abort();
    this.running = null;
    if (this.isOpen || !this.lostAt) this.lostAt = Date.now();
    this.isOpen = false;
    this.changed();
  }

  async read(signal) {
    const headers = { Accept: "text/event-stream" };
    const token = read("token");
    if (token) headers.Authorization = `Bearer ${token}`;
    if (this.last !== null) headers["Last-Event-ID"] = this.last;
    const answer = await fetch("/events", { headers, signal, cache: "no-store" });
    if (!answer.ok) throw new Error(`${answer.status}`);
    // How old the first beat is can only be told by the clock that dated it.
    this.clock = Date.parse(answer.headers.get("date")) - Date.now();
    this.isFirst = true;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      const known = this.state;
      const faults = parts.filter((part) => this.heard(part)).length;
      this.changed({ news: this.state === known ? null : this.state, fault: faults > 0 && known === this.state && known !== null });
    }
  }

  /** One event: lines of `field: value`. Whether it tells of a fault. */
  heard(part) {
    const fields = new Map(part.split("\n").map((line) => line.split(/: (.*)/s, 2)));
    if (!fields.has("data")) return false;
    const data = JSON.parse(fields.get("data"));
    if (fields.has("id")) this.last = fields.get("id");
    switch (fields.get("event")) {
      case "happening":
        this.happenings = [...this.happenings, data].slice(-KEPT);
        break;
      case "reset":
        this.happenings = [];
        break;
      case "state":
        this.told(data);
        break;
      default:
    }
    return data.group === "fault";
  }

  /** The state as the other door tells it: the same, without the beats. */
  renew(status) {
    // Before the stream's first word it is not known how old the beat is.
    if (this.isOpen) {
      if (status.body.at_ms !== this.state.body.at_ms) this.beatAt = Date.now();
      this.state = { ...this.state, ...status };
    }
    this.changed({ news: status });
  }

  told(state) {
    const { at_ms: at, history = [] } = state.body;
    if (this.isFirst) {
      this.beats = [];
      const age = Number.isFinite(this.clock) && at ? Math.max(0, Date.now() + this.clock - at) : 0;
      this.beatAt = Date.now() - age;
    } else if (at !== this.state.body.at_ms) {
      this.beatAt = Date.now();
    }
    this.beats = [...this.beats, ...history].slice(-BEATS);
    this.state = state;
    this.isFirst = false;
    this.isOpen = true;
    this.lostAt = 0;
  }
}

/** A beat may be late by its whole interval (a busy machine, a slow reading); two in a row are not. */
const STALE_BEATS = 2;
/** After four the heart stands: nothing that is shown can be trusted to be so still. */
const DEAD_BEATS = 4;
/** A stream that is back within this time was never lost to a person, in ms. */
const LOST_AFTER = 1200;

/** `alive`, `stale`, `dead`, or `unknown` before the first beat was heard. */
export function pulse(feed, now = Date.now()) {
  if (!feed.state) return feed.lostAt && now - feed.lostAt > LOST_AFTER ? "dead" : "unknown";
  if (!feed.isOpen && now - feed.lostAt > LOST_AFTER) return "dead";
  const beats = (now - feed.beatAt) / (1000 * (feed.state.body.pulse_s || 30));
  return beats < STALE_BEATS ? "alive" : beats < DEAD_BEATS ? "stale" : "dead";
}
