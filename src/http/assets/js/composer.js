// The message being written. A draft is kept with its conversation at every key.
import { $ } from "./dom.js";
import { read, write } from "./kept.js";
import { t } from "./words.js";

/** The daemon's bound, in bytes. */
const BYTES_MAX = 64 * 1024;
const narrow = matchMedia("(max-width: 32rem)");
const isApple = /mac|iphone|ipad/i.test(navigator.userAgentData?.platform ?? navigator.platform ?? "");

export class Composer {
  /** `on`: say(text), stop(). */
  constructor(on) {
    this.on = on;
    this.text = $("text");
    this.id = "";
    this.busy = false;
    this.away = false;
    this.text.addEventListener("input", () => this.typed());
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.keyCode !== 229) {
        event.preventDefault();
        this.submit();
      }
    });
    narrow.addEventListener("change", () => this.look());
    $("composer").addEventListener("submit", (event) => { event.preventDefault(); this.submit(); });
    $("stop").addEventListener("click", () => { this.text.focus(); on.stop(); });
  }

  open(id) {
    this.id = id;
    this.text.value = read(`draft.${id}`) ?? "";
    this.look();
  }

  typed() {
    write(`draft.${this.id}`, this.text.value);
    this.look();
  }

  put(text) {
    this.text.value = this.text.value ? `${text}\n${this.text.value}` : text;
    this.typed();
    this.text.focus();
  }

  get bytes() { return new TextEncoder().encode(this.text.value).length; }

  submit() {
    const text = this.text.value.trim();
    if (!text || this.bytes > BYTES_MAX) return;
    this.text.value = "";
    this.typed();
    this.on.say(text);
  }

  state(busy, away) {
    this.busy = busy;
    this.away = away;
    this.look();
  }

  look() {
    const bytes = this.text.value.length * 3 > BYTES_MAX ? this.bytes : 0;
    const long = bytes > BYTES_MAX;
    const empty = !this.text.value.trim();
    const stop = $("stop");
    const hadFocus = document.activeElement === stop;
    stop.hidden = !this.busy || this.away;
    if (hadFocus && stop.hidden) this.text.focus();
    // While an answer runs, the stop button stands where sending was, until something is typed.
    $("send").hidden = !stop.hidden && empty;
    $("send").disabled = empty || long;
    const key = isApple ? "⌘" : "Ctrl";
    $("hint").textContent = long ? t("hint.long", { n: bytes, max: BYTES_MAX })
      : this.away ? t("hint.away") : this.busy ? t("hint.busy") : t(narrow.matches ? "hint.short" : "hint", { key });
    if (!CSS.supports("field-sizing", "content")) {
      this.text.style.height = "auto";
      this.text.style.height = `${this.text.scrollHeight}px`;
    }
  }
}
