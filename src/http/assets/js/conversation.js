// One conversation as this page knows it. No elements here: frames and lines go in, `changed` says
// which turn looks different now (null: all of it).
//
// What a person sends is written down first and struck out only when the daemon has shown that it
// took it on: a turn's first frame, or the line in the history. After a lost connection the history
// decides whether a message goes out again, so that nothing is lost and nothing is said twice.
import { readList, writeList } from "./kept.js";

const ENDED = new Set(["done", "error", "failed", "cancelled", "interrupted"]);

let keys = 0;

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
    this.shortened = 0;
    /** What was said by turn, as told since attaching. */
    this.said = new Map();
    this.changed = changed;
    this.outbox = readList(`outbox.${id}`).filter((entry) => typeof entry?.text === "string");
    for (const entry of this.outbox) entry.key = ++keys;
  }

  get isEmpty() { return this.turns.size === 0 && this.outbox.length === 0; }

  /** Turns in their order. */
  ordered() { return [...this.turns.values()].sort((a, b) => a.turn - b.turn); }

  keep() {
    writeList(`outbox.${this.id}`, this.outbox.map(({ text, at, state, after, why }) => ({ text, at, state, after, why })));
  }

  /** A message of the person's. */
  say(text) {
    this.outbox.push({ key: ++keys, text, at: Date.now(), state: "kept", after: 0, why: "" });
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
    return entry.text;
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

  /**
   * The turn of a frame. One that nobody has announced is our own message, taken on: what others
   * say comes with its words first.
   */
  begun(number, announced) {
    const isNew = !this.turns.has(number);
    const turn = this.turn(number);
    if (isNew) {
      const entry = this.outbox[0];
      if (!announced && entry?.state === "sent" && number > entry.after) {
        this.outbox.shift();
        this.keep();
        Object.assign(turn, { said: entry.text, saidAt: entry.at });
      }
      // It is there, whatever the history says that was read a moment earlier.
      this.said.set(number, null);
      this.changed(this, null);
    }
    if (!ENDED.has(turn.outcome)) this.live = number;
    return turn;
  }

  /** Asked for what is true now: the history and the unfinished turns come, then `settle`. */
  attach() {
    this.attached = true;
    this.loaded = false;
    this.said = new Map();
  }

  /**
   * All has come. What was said decides: a message that is among it was taken on, any other goes
   * out again. `all`: nothing of the conversation is left out, so what is not among it is gone.
   */
  settle(all) {
    for (const number of [...this.turns.keys()]) {
      if (this.said.has(number)) continue;
      if (all || this.turns.get(number).outcome === "running") this.turns.delete(number);
    }
    this.last = Math.max(0, ...this.turns.keys());
    this.live = 0;
    for (const turn of this.turns.values()) if (turn.outcome === "running") this.live = Math.max(this.live, turn.turn);
    this.outbox = this.outbox.filter((entry) => {
      if (entry.state !== "sent") return true;
      for (const [number, text] of this.said) {
        if (number > entry.after && text === entry.text) {
          this.said.delete(number);
          return false;
        }
      }
      entry.state = "kept";
      return true;
    });
    this.keep();
    this.loaded = true;
    this.changed(this, null);
  }

  /** Lines of the log, oldest first. */
  history(lines) {
    for (const line of lines) {
      const turn = this.turn(line.turn);
      if (line.role === "user") {
        this.said.set(line.turn, line.content);
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
    for (const name of ["backend", "model", "elapsed_ms", "code", "words"]) {
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
    const turn = this.begun(frame.turn, true);
    this.said.set(frame.turn, frame.content);
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
    const turn = this.begun(number, frame.event === "user");
    // Late frames of a turn whose end is known say nothing new.
    if (ENDED.has(turn.outcome)) return null;
    switch (frame.event) {
      case "user":
        turn.said = frame.content;
        this.said.set(number, frame.content);
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
