// The ways to the daemon: requests, and a socket that comes back by itself.
import { read } from "./kept.js";

/** First and longest pause before the next try, in ms. A Pi is up again after some seconds. */
const PAUSE_FIRST = 400;
const PAUSE_MAX = 12000;
/** How long a socket may take to open, and may be silent, in ms. The page pings when it is silent. */
const OPEN_MAX = 8000;
const PING_AFTER = 15000;
const SILENT_MAX = 40000;

export class Unauthorised extends Error {}

/** A request with the token. Throws `Unauthorised`, or an error that says what the daemon said. */
export async function request(method, path, body) {
  const headers = { Accept: "application/json" };
  const token = read("token");
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body),
    signal: AbortSignal.timeout(OPEN_MAX),
  });
  if (answer.status === 401) throw new Unauthorised();
  const text = await answer.text();
  let value = null;
  try { value = text ? JSON.parse(text) : null; } catch { /* said below */ }
  if (!answer.ok) throw new Error(value?.error ?? value?.detail ?? `${answer.status}`);
  return value;
}

/** The token as a protocol's name: browsers let a page set nothing else on a socket. */
function protocols() {
  const token = read("token");
  if (!token) return ["crayfish.v1"];
  const bytes = [...new TextEncoder().encode(token)];
  return ["crayfish.v1", `crayfish.token.${bytes.map((byte) => byte.toString(16).padStart(2, "0")).join("")}`];
}

export class Door {
  /** `on`: open(), frame(frame), away(retryAt), unauthorised(). `before` runs before each try. */
  constructor(on, before) {
    this.on = on;
    this.before = before;
    this.socket = null;
    this.isOpen = false;
    this.tries = 0;
    this.timer = 0;
    this.heard = 0;
    this.attempt = 0;
    /** What is to be done at each pong to come. */
    this.pongs = [];
    addEventListener("online", () => this.now());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.look(); });
    setInterval(() => this.look(), 5000);
  }

  /** Tries at once. */
  now() {
    if (this.isOpen) return;
    this.tries = 0;
    this.connect();
  }

  /** Starts afresh, with another token for example. */
  again() {
    this.drop();
    this.now();
  }

  drop() {
    this.attempt += 1;
    clearTimeout(this.timer);
    const socket = this.socket;
    this.socket = null;
    this.isOpen = false;
    this.pongs = [];
    socket?.close();
  }

  async connect() {
    this.drop();
    const attempt = this.attempt;
    try {
      await this.before();
    } catch (error) {
      if (attempt !== this.attempt) return;
      if (error instanceof Unauthorised) this.on.unauthorised();
      else this.lost();
      return;
    }
    if (attempt !== this.attempt) return;
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/ws`, protocols());
    this.socket = socket;
    const late = setTimeout(() => socket.close(), OPEN_MAX);
    socket.onopen = () => {
      clearTimeout(late);
      this.heard = Date.now();
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.socket) return;
      this.heard = Date.now();
      let frame = null;
      try { frame = JSON.parse(data); } catch { return; }
      if (frame?.event === "ready" && !this.isOpen) {
        this.isOpen = true;
        this.tries = 0;
        this.on.open(frame);
      } else if (frame?.event === "pong") {
        this.pongs.shift()?.();
      } else if (frame && typeof frame.event === "string") {
        this.on.frame(frame);
      }
    };
    socket.onclose = () => {
      clearTimeout(late);
      if (socket === this.socket) this.lost();
    };
  }

  lost() {
    this.drop();
    const pause = Math.min(PAUSE_MAX, PAUSE_FIRST * 2 ** this.tries) * (0.75 + Math.random() / 2);
    this.tries += 1;
    this.timer = setTimeout(() => this.connect(), pause);
    this.on.away(Date.now() + pause);
  }

  /** A socket that is silent for too long is dead, whatever it says. */
  look() {
    if (!this.isOpen) {
      if (!document.hidden && this.tries > 2) this.now();
      return;
    }
    const silent = Date.now() - this.heard;
    if (silent > SILENT_MAX) this.lost();
    else if (silent > PING_AFTER) this.after(() => {});
  }

  /** Runs `then` when everything sent so far has been answered: answers come in order. */
  after(then) {
    this.pongs.push(then);
    this.send({ type: "ping" });
  }

  send(frame) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify(frame));
    return true;
  }
}
