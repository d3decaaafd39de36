// Charts of the last beats. The library is fetched when the first chart is shown: a page that only
// talks never reads it.
import { make } from "./dom.js";
import { language, t } from "./words.js";

/** Height of a chart, in pixels of the page: fixed, so that nothing jumps. */
const HEIGHT = 132;

let library = null;

const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Numbers of these many places, in the language of the page. */
export function digits(value, places = 0) {
  return new Intl.NumberFormat(language(), { minimumFractionDigits: places, maximumFractionDigits: places }).format(value);
}

/** The local time of a moment. */
export function clock(at, seconds = false) {
  return new Intl.DateTimeFormat(language(), { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined, hourCycle: "h23" }).format(at);
}

export class Chart {
  /** `field` of a beat, in `unit`, with `places`; `range`: the least that the scale spans. */
  constructor(key, { field, unit, places, range }) {
    Object.assign(this, { key, field, unit, places, range, plot: null, drawn: "" });
    this.title = make("h4", {}, "");
    this.span = make("span", { class: "span" }, "");
    this.canvas = make("div", { class: "plot", role: "img" });
    this.node = make("figure", { class: "chart", "data-chart": key }, make("figcaption", {}, this.title, this.span), this.canvas);
  }

  number(value) { return `${digits(value, this.places)}${this.unit ? ` ${this.unit}` : ""}`; }

  /** `why`: what to say where no beat has the reading. */
  async draw(beats, why) {
    const values = beats.map((beat) => beat[this.field] ?? null);
    const known = values.filter((value) => value !== null);
    this.title.textContent = t(`vital.${this.key}`);
    if (!known.length) {
      this.drop();
      this.span.textContent = "";
      this.canvas.removeAttribute("aria-label");
      this.canvas.removeAttribute("role");
      this.canvas.replaceChildren(make("p", { class: "absent" }, `– ${why}`));
      return;
    }
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const texts = { low: digits(low, this.places), high: this.number(high), n: known.length, name: t(`vital.${this.key}`), now: this.number(known.at(-1)) };
    this.span.textContent = t("chart.span", texts);
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", t("chart.label", texts));
    library ??= import("./../vendor/uplot.js");
    const { default: Plot } = await library;
    const width = this.canvas.clientWidth;
    if (!width) return;
    const data = [beats.map((beat) => beat.at_ms / 1000), values];
    // Another theme, language or width is another picture.
    const look = `${width} ${style("--text")} ${language()}`;
    if (this.plot && this.drawn === look) {
      this.plot.setData(data);
      return;
    }
    this.drop();
    this.canvas.replaceChildren();
    this.drawn = look;
    this.canvas.dataset.ink = style("--text");
    this.plot = new Plot(this.options(width), data, this.canvas);
  }

  options(width) {
    const axis = { stroke: style("--muted"), font: `12px ${style("--sans")}`, ticks: { show: false }, grid: { stroke: style("--line"), width: 1 } };
    const [least, most] = this.range;
    // Whole steps, so that the scale moves rarely and its ends have names.
    const step = most > 10 ? 10 : 1;
    return {
      width, height: HEIGHT, legend: { show: false }, cursor: { show: false }, padding: [8, 20, 0, 0],
      scales: { x: { time: true }, y: { range: (_, low, high) => [Math.min(least, step * Math.floor(low / step)), Math.max(most, step * Math.ceil(high / step))] } },
      axes: [
        { ...axis, size: 24, gap: 4, space: 72, grid: { show: false }, values: (_, at) => at.map((s) => clock(s * 1000)) },
        { ...axis, size: 36, gap: 4, space: 32, values: (_, at) => at.map((value) => digits(value, value % 1 ? 1 : 0)) },
      ],
      series: [{}, { stroke: style("--accent"), width: 1.75, fill: style("--wash"), points: { show: (plot) => plot.data[0].length < 2 } }],
    };
  }

  drop() {
    this.plot?.destroy();
    this.plot = null;
    this.drawn = "";
  }
}
