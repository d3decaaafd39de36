// One conversation as this page knows it. No elements here: frames and lines go in, `changed` says
// which turn looks different now (null: all of it).
//
// What a person sends is written down first and struck out only when the daemon has shown that it
// took it on: `taken`, or the message's id in the history. After a lost connection whatever was not
// struck out goes out again under the same id, and the daemon does not ask the same message twice.
import { readList, writeList } from "./kept.js";

const ENDED = new Set(["done", "error", "failed", "cancelled", "interrupted"]);

let keys = 0;

/** A name that nobody else gives. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Conversation {
  constructor(id, changed) {
    this.id = id;
    this.title = "";
    this.turns = new Map();
    /** Number of the turn that runs, 0 if none does. */
    this.live = 0;
    /** The newest turn that is known. */
    this.last = 0;
    /** Whether this connection attached it, and whether its history came. */
    this.attached = false;
    this.loaded = false;
    /** Whether what is before the earliest turn is being asked for, and where the log begins. */
    this.asking = false;
    this.begins = 1;
    /** What was said by turn, as told since attaching: the message and its id. */
    this.said = new Map();
    /** Whether the log has spoken since attaching. */
    this.told = false;
    this.changed = changed;
    this.outbox = readList(`outbox.${id}`).filter((entry) => typeof entry?.text === "string");
    for (const entry of this.outbox) Object.assign(entry, { key: ++keys, id: entry.id ?? newId() });
  }

  get isEmpty() { return this.turns.size === 0 && this.outbox.length === 0; }

  /** Turns in their order. */
  ordered() { return [...this.turns.values()].sort((a, b) => a.turn - b.turn); }

  /** The earliest turn that is here whole; turns are numbered from 1. */
  get earliest() {
    let earliest = Infinity;
    for (const turn of this.turns.values()) if (turn.said !== null && turn.turn < earliest) earliest = turn.turn;
    return earliest;
  }

  /** Whether the log has turns before those that are here. */
  get hasEarlier() { return this.earliest > this.begins && this.earliest < Infinity; }

  keep() {
    writeList(`outbox.${this.id}`, this.outbox.map(({ id, text, at, state, after, why }) => ({ id, text, at, state, after, why })));
  }

  /** A message of the person's. */
  say(text) {
    this.outbox.push({ key: ++keys, id: newId(), text, at: Date.now(), state: "kept", after: 0, why: "" });
    this.keep();
    this.changed(this, null);
  }

  /** Whether something can be stopped: a turn that runs, or a message just sent. */
  get isBusy() { return this.attached && (this.live > 0 || this.outbox[0]?.state === "sent"); }

  /** Takes a message back; its text. */
  takeBack(entry) {
    this.outbox = this.outbox.filter((other) => other !== entry);
    this.keep();
    this.changed(this, null);
    return entry.text;
  }

  sendAgain(entry) {
    Object.assign(entry, { state: "kept", why: "" });
    this.keep();
    this.changed(this, null);
  }

  /** The next message that may go out now. It counts as sent from here on. */
  next() {
    const entry = this.outbox[0];
    if (!this.attached || !this.loaded || this.live || entry?.state !== "kept") return null;
    Object.assign(entry, { state: "sent", after: this.last });
    this.keep();
    this.changed(this, null);
    return entry;
  }

  /** The connection is gone: nothing more is heard of a running turn until it is attached again. */
  detach() {
    this.attached = false;
    this.loaded = false;
    this.changed(this, null);
  }

  turn(number) {
    let turn = this.turns.get(number);
    if (!turn) {
      turn = { turn: number, said: null, saidAt: 0, answer: "", outcome: "running", since: Date.now() };
      this.turns.set(number, turn);
      this.last = Math.max(this.last, number);
    }
    return turn;
  }

  /** The turn of a frame. */
  begun(number) {
    const isNew = !this.turns.has(number);
    const turn = this.turn(number);
    if (isNew) {
      // It is there, whatever the history says that was read a moment earlier.
      this.said.set(number, {});
      this.changed(this, null);
    }
    if (!ENDED.has(turn.outcome)) this.live = number;
    return turn;
  }

  /** A message is known to have opened a turn: ours is struck out. */
  struck(id) {
    const entry = id && this.outbox.find((each) => each.id === id);
    if (!entry) return null;
    this.outbox = this.outbox.filter((each) => each !== entry);
    this.keep();
    return entry;
  }

  /** The daemon took our message on; perhaps it had before, when the connection was lost. */
  taken(frame) {
    const entry = this.struck(frame.id);
    const turn = this.begun(frame.turn);
    if (entry && turn.said === null) Object.assign(turn, { said: entry.text, saidAt: entry.at });
    this.changed(this, null);
  }

  /** Asked for what is true now: the history and the unfinished turns come, then `settle`. */
  attach() {
    this.attached = true;
    this.loaded = false;
    this.told = false;
    this.said = new Map();
  }

  /**
   * All has come. What was said decides: a message that is among it was taken on, any other goes
   * out again, and a turn that is not among it is gone. Earlier turns stay as far as they join on.
   */
  settle() {
    if (this.told) {
      let joined = Math.min(Infinity, ...this.said.keys());
      while (this.turns.has(joined - 1)) joined -= 1;
      const first = Math.min(Infinity, ...this.said.keys());
      for (const number of [...this.turns.keys()]) {
        if (number < joined || (number >= first && !this.said.has(number))) this.turns.delete(number);
      }
    }
    this.last = Math.max(0, ...this.turns.keys());
    this.live = 0;
    for (const turn of this.turns.values()) if (turn.outcome === "running") this.live = Math.max(this.live, turn.turn);
    this.outbox = this.outbox.filter((entry) => {
      if (entry.state !== "sent") return true;
      entry.state = "kept";
      return ![...this.said.values()].some((said) => said.id === entry.id);
    });
    this.keep();
    this.loaded = true;
    this.changed(this, null);
  }

  /** The newest lines of the log, oldest first. */
  history(lines) {
    this.told = true;
    for (const line of lines) {
      if (line.role === "user") this.said.set(line.turn, { id: line.id });
    }
    this.read(lines);
  }

  /** Lines of the log, oldest first. Half a turn at their beginning is left to an earlier page. */
  read(lines) {
    for (const line of lines) {
      if (line.role !== "user" && !this.turns.has(line.turn)) continue;
      const turn = this.turn(line.turn);
      if (line.role === "user") {
        turn.said = line.content;
        turn.saidAt = Date.parse(line.at) || turn.saidAt;
      } else {
        this.answered(turn, line);
      }
    }
    this.changed(this, null);
  }

  answered(turn, line) {
    const ended = ENDED.has(line.outcome);
    turn.outcome = line.outcome ?? "done";
    turn.endedAt = Date.parse(line.at) || 0;
    for (const name of ["backend", "model", "elapsed_ms", "cut", "clipped", "code", "words"]) {
      if (line[name] !== undefined && line[name] !== null) turn[name] = line[name];
    }
    // The line is what was shown and, after an empty line, why it ended.
    turn.answer = line.content;
    if (line.words && line.content.endsWith(line.words)) {
      turn.answer = line.content.slice(0, line.content.length - line.words.length).replace(/\n\n$/, "");
    }
    if (ended && this.live === turn.turn) this.live = 0;
  }

  /** Attached: what an unfinished turn has shown so far. */
  snapshot(frame) {
    const turn = this.begun(frame.turn);
    this.said.set(frame.turn, { id: frame.id });
    if (ENDED.has(turn.outcome)) return;
    turn.said = frame.content;
    turn.answer = frame.text;
    if (frame.about_s) Object.assign(turn, { about: frame.about_s, since: Date.now() });
    this.changed(this, turn);
  }

  /** A frame of a turn. Returns the turn if it ended with it. */
  frame(frame) {
    const number = frame.turn ?? frame.stream_id;
    if (typeof number !== "number") return null;
    const turn = this.begun(number);
    // Late frames of a turn whose end is known say nothing new.
    if (ENDED.has(turn.outcome)) return null;
    switch (frame.event) {
      case "user":
        turn.said = frame.content;
        this.said.set(number, { id: frame.id });
        this.struck(frame.id);
        this.changed(this, null);
        break;
      case "waiting":
        Object.assign(turn, { about: frame.about_s, since: Date.now() });
        break;
      case "delta":
        turn.answer += frame.text;
        break;
      case "done":
        Object.assign(turn, frame, { outcome: "done", endedAt: Date.now() });
        break;
      case "error":
        Object.assign(turn, { outcome: "error", code: frame.code, words: frame.detail, endedAt: Date.now() });
        break;
      case "cancelled":
        Object.assign(turn, { outcome: "cancelled", endedAt: Date.now() });
        break;
      default:
        return null;
    }
    const ended = turn.outcome !== "running";
    if (ended && this.live === number) this.live = 0;
    this.changed(this, turn);
    return ended ? turn : null;
  }

  /** The daemon did not take the message on. */
  refused(frame) {
    const entry = this.outbox[0];
    if (entry?.state !== "sent") return false;
    Object.assign(entry, { state: "refused", why: frame.detail, code: frame.code });
    this.keep();
    this.changed(this, null);
    return true;
  }
}
