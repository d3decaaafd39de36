// Answers as Markdown. The libraries come after the first paint; until then words are plain text.
//
// Only what changed is built again: while an answer streams, its finished blocks stay as they are.
import { button, copy, icon, make, tell } from "./dom.js";
import { t } from "./words.js";

let libraries = null;
let ready = null;

/** Loads the libraries once. */
export function load() {
  ready ??= Promise.all([import("../vendor/marked.js"), import("../vendor/purify.js")]).then(
    ([{ Marked }]) => { libraries = { marked: new Marked(OPTIONS), purify: globalThis.DOMPurify }; return true; },
    () => { ready = null; return false; },
  );
  return ready;
}

const escape = (text) => text.replace(/[&<>"]/g, (mark) => `&#${mark.charCodeAt(0)};`);

// Tags in an answer are words about tags. Pictures would be fetched from somewhere else.
const OPTIONS = {
  gfm: true,
  breaks: false,
  renderer: { html: ({ text }) => escape(text), image: ({ text, href }) => escape(text || href) },
};

const ALLOWED = {
  ALLOWED_TAGS: ["p", "br", "strong", "em", "del", "code", "pre", "blockquote", "ul", "ol", "li", "a", "hr",
    "h1", "h2", "h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td", "sub", "sup"],
  ALLOWED_ATTR: ["href", "title", "start", "align"],
  // Whatever is not named here must look like an address, by the rule below.
  ADD_URI_SAFE_ATTR: ["start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

/** Shows `text` in `root`, a `.words` element. */
export function show(root, text, finished) {
  if (!libraries) {
    root.classList.add("plain");
    root.textContent = text;
    root.blocks = null;
    return;
  }
  if (!root.blocks) {
    root.classList.remove("plain");
    root.replaceChildren();
    root.blocks = [];
  }
  const { marked } = libraries;
  let tokens;
  try {
    tokens = marked.lexer(text).filter((token) => token.type !== "space");
  } catch {
    tokens = [{ type: "text", raw: text, text }];
  }
  tokens.forEach((token, index) => {
    const last = index === tokens.length - 1;
    const closed = finished || !last;
    const known = root.blocks[index];
    if (known && known.raw === token.raw && known.closed === closed) return;
    if (known && token.type === "code" && known.type === "code" && known.lang === token.lang) {
      known.code.textContent = token.text;
      Object.assign(known, { raw: token.raw, closed, text: token.text });
      if (closed) colour(known.code, token);
      return;
    }
    const block = token.type === "code" ? code(token, closed) : prose(token);
    Object.assign(block, { raw: token.raw, closed, type: token.type, lang: token.lang });
    if (known) known.node.replaceWith(block.node);
    else root.append(block.node);
    root.blocks[index] = block;
  });
  for (const extra of root.blocks.splice(tokens.length)) extra.node.remove();
}

function prose(token) {
  const { marked, purify } = libraries;
  // Each block runs in the direction of its own words.
  const node = make("div", { dir: "auto" });
  let fragment;
  try {
    const list = [token];
    list.links = {};
    fragment = purify.sanitize(marked.parser(list), ALLOWED);
  } catch {
    fragment = document.createTextNode(token.raw);
  }
  node.append(fragment);
  for (const link of node.querySelectorAll("a")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer nofollow";
  }
  for (const table of node.querySelectorAll("table")) {
    const frame = make("div", { class: "table", tabindex: "0", role: "region", "aria-label": "table" });
    table.replaceWith(frame);
    frame.append(table);
  }
  // Code inside of lists and quotes: the same box, coloured at once.
  for (const pre of node.querySelectorAll("pre")) pre.replaceWith(code({ text: pre.textContent, lang: "" }, true).node);
  return { node };
}

function code(token, closed) {
  const language = (token.lang ?? "").trim().split(/\s+/)[0].slice(0, 24);
  const body = make("code");
  body.textContent = token.text;
  const block = { code: body, text: token.text };
  const act = button("copy", t("copy.code"), {
    onclick: async () => {
      const done = await copy(block.text);
      act.replaceChildren(icon(done ? "check" : "warn"), make("span", {}, t(done ? "copied" : "copy.failed")));
      tell(t(done ? "copied" : "copy.failed"));
      setTimeout(() => act.replaceChildren(icon("copy"), make("span", {}, t("copy.code"))), 1800);
    },
  });
  act.classList.add("copy-code");
  block.node = make("div", { class: "code", dir: "ltr" },
    make("div", { class: "code-head" }, make("span", {}, language || t("code.text")), act),
    make("pre", { tabindex: "0", "aria-label": language || t("code.text"), role: "region" }, body));
  if (closed) colour(body, token);
  return block;
}

const GRAMMARS = {
  bash: "bash", sh: "bash", shell: "bash", zsh: "bash", console: "bash", python: "python", py: "python",
  javascript: "javascript", js: "javascript", mjs: "javascript", ts: "javascript", typescript: "javascript",
  jsx: "javascript", tsx: "javascript", json: "json", jsonc: "json", rust: "rust", rs: "rust",
  yaml: "yaml", yml: "yaml", c: "c", h: "c", cpp: "cpp", "c++": "cpp", cc: "cpp", hpp: "cpp", ini: "ini", toml: "ini",
  conf: "ini", diff: "diff", patch: "diff", xml: "xml", html: "xml", svg: "xml", sql: "sql", go: "go", golang: "go",
};
const loaded = new Map();

function grammar(name) {
  if (!loaded.has(name)) {
    loaded.set(name, Promise.all([import("../vendor/hljs/core.js"), import(`../vendor/hljs/${name}.js`)])
      .then(([core, language]) => {
        core.default.registerLanguage(name, language.default);
        return core.default;
      }));
  }
  return loaded.get(name);
}

/** Colours finished code; what is too long or of an unknown language stays as it is. */
async function colour(body, token) {
  const name = GRAMMARS[(token.lang ?? "").trim().split(/\s+/)[0].toLowerCase()];
  const text = token.text;
  if (!name || text.length > 20000) return;
  try {
    const highlighter = await grammar(name);
    if (body.textContent !== text) return;
    const html = highlighter.highlight(text, { language: name, ignoreIllegals: true }).value;
    body.replaceChildren(libraries.purify.sanitize(html, {
      ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true,
    }));
  } catch { /* plain code is code too */ }
}
