// Small ways to build elements. Text is always text: nothing here reads markup.
const PATHS = {
  plus: "M12 5v14M5 12h14", close: "M6 6l12 12M18 6 6 18", menu: "M4 7h16M4 12h16M4 17h10",
  send: "M12 19V5M6 11l6-6 6 6", stop: "M7 7h10v10H7z", down: "M12 5v14M6 13l6 6 6-6",
  copy: "M9 9h10v11H9zM5 15V4h10", check: "M5 12.5l4.5 4.5L19 7.5",
  retry: "M4.5 12a7.5 7.5 0 1 1 2.2 5.3M4.5 12V7M4.5 12h5",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3", trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10 11v5M14 11v5",
  warn: "M12 4 2.5 20h19zM12 10v4.5M12 17.2v.1", key: "M14 10a4 4 0 1 0-3.5 4L13 16.5h2V19h2.5v2H21v-3.5z",
  theme: "M12 3.5a8.5 8.5 0 1 0 0 17zM12 3.5a8.5 8.5 0 0 1 0 17",
  language: "M4 6h9M8.5 4v2M11 6c-.8 4-3 6.8-6.5 8.5M6 9.5c1.2 2 3 3.8 5.5 5M12.5 20l4-9.5 4 9.5M14 17h5",
};
const SVG = "http://www.w3.org/2000/svg";

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "i");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name] ?? "");
  svg.append(path);
  return svg;
}

/** An element with attributes and children; null children are left out. */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const button = (picture, text, attributes) =>
  make("button", { type: "button", ...attributes }, picture ? icon(picture) : null, text ? make("span", {}, text) : null);

export const $ = (id) => document.getElementById(id);

/** Puts text into the clipboard, also where the browser has it only for secure origins. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { /* the old way */ }
  const area = make("textarea", { class: "heard", "aria-hidden": "true", tabindex: "-1" });
  const focused = document.activeElement;
  area.value = text;
  document.body.append(area);
  area.select();
  let done = false;
  try { done = document.execCommand("copy"); } catch { /* said by the caller */ }
  area.remove();
  focused?.focus?.({ preventScroll: true });
  return done;
}

/** Says something once to those who listen instead of looking. */
export function tell(text, where = "told") {
  const region = $(where);
  region.textContent = "";
  setTimeout(() => { region.textContent = text; }, 50);
}
