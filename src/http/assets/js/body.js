// Body: whether the heart beats, what the machine feels, what the governor allows and why.
// Everything is made once and then only rewritten: nothing jumps, and nobody loses their place.
import { Chart, clock, digits } from "./charts.js";
import { $, make } from "./dom.js";
import { pulse } from "./feed.js";
import { happening } from "./feeds.js";
import { lasting, t } from "./words.js";

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Bytes in decimal units, as disks are sold. */
export function bytes(count) {
  const step = Math.min(UNITS.length - 1, count < 1 ? 0 : Math.floor(Math.log10(count) / 3));
  const value = count / 1000 ** step;
  return `${digits(value, step && value < 10 ? 1 : 0)} ${UNITS[step]}`;
}

const number = (places, unit) => (value) => `${digits(value, places)}${unit ? ` ${unit}` : ""}`;
const yes = (good, bad) => (value) => t(value ? bad : good);

/** What is shown of the vital signs: key, its field, how it is written, what is bad about it. */
const VITALS = [
  ["temperature", "temperature_c", number(1, "°C")],
  ["cpu", "cpu_percent", number(0, "%")],
  ["ram", "ram_percent", number(0, "%"), (v) => v.ram_total_bytes && t("of", { all: bytes(v.ram_total_bytes) })],
  ["load", "load_1m", number(2, "")],
  ["clock", "cpu_mhz", (mhz) => `${digits(mhz / 1000, 2)} GHz`, (v) => v.cpu_mhz_max && t("at.most", { n: `${digits(v.cpu_mhz_max / 1000, 2)} GHz` })],
  ["fan", "fan_rpm", number(0, "rpm"), (v) => v.fan_percent !== null && `${digits(v.fan_percent)} %`],
  ["supply", "under_voltage", yes("supply.good", "supply.low"), (v) => v.supply_ma && `${digits(v.supply_ma / 1000, 1)} A`],
  ["throttling", "throttling", throttling],
  ["pressure", "cpu_pressure_percent", number(0, "%")],
  ["stall", "memory_stall_percent", number(0, "%")],
  ["own", "rss_bytes", bytes],
  ["disk", "disk_free_bytes", bytes, (v) => v.disk_read_only ? t("disk.readonly") : v.disk_total_bytes && t("of", { all: bytes(v.disk_total_bytes) })],
  ["written", "card_written_per_day_bytes", bytes, () => t("a.day")],
  ["npu", "npu_present", (there) => t(there ? "npu.there" : "npu.away"), (v) => v.npu_driver && t("npu.driver", { n: v.npu_driver })],
  ["time", "clock_synchronised", yes("time.free", "time.follows")],
  ["up", "machine_uptime_s", lasting],
];

/** Which of them need a person's hand, and which only their eye. */
const BAD = { supply: (v) => v.under_voltage, throttling: (v) => v.throttling?.throttled || v.throttling?.frequency_capped, disk: (v) => v.disk_read_only };

const CHARTS = [
  ["temperature", { field: "temperature_c", unit: "°C", places: 1, range: [40, 60] }],
  ["cpu", { field: "cpu_percent", unit: "%", places: 0, range: [0, 100] }],
  ["ram", { field: "ram_percent", unit: "%", places: 0, range: [0, 100] }],
  ["load", { field: "load_1m", unit: "", places: 2, range: [0, 1] }],
];

const LEVELS = ["full", "short", "cheap", "no_model"];
/** Kinds of happenings that belong to the body's story, and how many are shown. */
const STORY = /^(stress|governor|sleep|beat\.(stuck|moving))/;
const STORY_MAX = 12;

function throttling(bits) {
  const now = ["under_voltage", "frequency_capped", "throttled", "soft_limit"].filter((bit) => bits[bit]);
  if (now.length) return now.map((bit) => t(`bit.${bit}`)).join(", ");
  const before = ["under_voltage", "frequency_capped", "throttled", "soft_limit"].some((bit) => bits[`${bit}_before`]);
  return t(before ? "bit.before" : "bit.none");
}

export class BodyView {
  constructor(feed) {
    this.feed = feed;
    this.tiles = new Map(VITALS.map(([key]) => [key, this.tile(key)]));
    this.charts = CHARTS.map(([key, options]) => new Chart(key, options));
    this.rungs = LEVELS.map((level) => make("li", { "data-level": level }, make("b"), make("span", { class: "why" })));
    $("tiles").append(...[...this.tiles.values()].map(({ node }) => node));
    $("charts").append(...this.charts.map(({ node }) => node));
    $("ladder").append(...this.rungs);
    new ResizeObserver(() => this.draw()).observe($("charts"));
  }

  tile(key) {
    const [name, value, note] = [make("dt"), make("dd", { class: "value" }), make("dd", { class: "note" })];
    return { name, value, note, node: make("div", { class: "tile", "data-vital": key }, name, value, note) };
  }

  draw() {
    if ($("view-body").hidden) return;
    this.beat();
    const { state } = this.feed;
    if (!state) return;
    const { body } = state;
    for (const [key, field, write, more] of VITALS) this.vital(key, body.vitals, field, write, more);
    for (const chart of this.charts) chart.draw(this.feed.beats, t(`absent.${chart.key}`));
    this.ladder(body);
    this.story(body);
  }

  /** The word for the heart, and how long ago it beat. */
  beat() {
    const { feed } = this;
    const word = pulse(feed);
    $("pulse").dataset.pulse = word;
    const said = t(`pulse.${word}`);
    // Rewritten only when it changes: it is read out to those who listen.
    if ($("pulse-word").textContent !== said) $("pulse-word").textContent = said;
    const s = Math.max(0, Math.round((Date.now() - feed.beatAt) / 1000));
    $("pulse-age").textContent = feed.state ? t("pulse.age", { n: s }) : "";
    $("pulse-says").textContent = word === "dead" && feed.state ? t("pulse.old") : feed.state?.body.describe ?? "";
  }

  vital(key, vitals, field, write, more) {
    const { node, name, value, note } = this.tiles.get(key);
    const reading = vitals[field];
    const absent = reading === null || reading === undefined;
    name.textContent = t(`vital.${key}`);
    value.textContent = absent ? "–" : write(reading);
    note.textContent = absent ? t(`absent.${key}`) : (more?.(vitals) || "");
    node.dataset.absent = String(absent);
    node.dataset.bad = String(Boolean(BAD[key]?.(vitals)));
  }

  ladder({ level, level_reason: reason, answer_tokens_max: most }) {
    this.rungs.forEach((rung, index) => {
      const current = LEVELS[index] === level;
      rung.firstChild.textContent = t(`level.${LEVELS[index]}`);
      const words = [current && reason ? t("level.because", { why: reason }) : t(`level.${LEVELS[index]}.text`)];
      if (current && most && level === "short") words.push(t("level.tokens", { n: most }));
      rung.lastChild.textContent = words.join(" ");
      if (current) rung.setAttribute("aria-current", "step");
      else rung.removeAttribute("aria-current");
    });
    $("ladder").dataset.level = level;
  }

  story(body) {
    const { beats } = this.feed;
    const bars = beats.map((beat) => make("i", { "data-level": beat.level, "data-stressed": beat.stressed ? "true" : null }));
    $("line").replaceChildren(...bars);
    const stressed = beats.filter((beat) => beat.stressed).length;
    const less = beats.filter((beat) => beat.level !== "full").length;
    $("line").setAttribute("aria-label", t("line.label", { n: beats.length, stressed, less }));
    const peak = body.stress_peak_temperature_c;
    $("line-words").textContent = body.stressed
      ? t("stress.now", { time: lasting(body.stress_lasted_s ?? 0), peak: peak === null ? "–" : `${digits(peak, 1)} °C` })
      : t("stress.none", { n: body.counters.stress });
    const told = this.feed.happenings.filter(({ kind }) => STORY.test(kind)).slice(-STORY_MAX).reverse();
    $("story").replaceChildren(...told.map((each) => happening(each)));
    $("story-none").hidden = told.length > 0;
    const times = beats.length ? [beats[0].at_ms, beats.at(-1).at_ms].map((at) => clock(at)) : ["", ""];
    $("line-from").textContent = times[0];
    $("line-to").textContent = times[1];
  }
}
