// The list of conversations.
import { $, button, make, tell } from "./dom.js";
import { request } from "./door.js";
import { read, write } from "./kept.js";
import { ago, t } from "./words.js";

const narrow = matchMedia("(max-width: 52rem)");

export class Sessions {
  /** `on`: open(id), fresh(), gone(id), failed(error). */
  constructor(on) {
    this.on = on;
    this.list = [];
    this.known = false;
    this.current = "";
    this.editing = null;
    this.side = $("side");
    this.folded = read("folded") === "yes";
    $("new").addEventListener("click", () => { this.close(); on.fresh(); });
    $("menu").addEventListener("click", () => this.toggle());
    $("side-close").addEventListener("click", () => this.close(true));
    $("scrim").addEventListener("click", () => this.close(true));
    $("list").addEventListener("keydown", (event) => this.arrows(event));
    narrow.addEventListener("change", () => { this.close(); this.fold(); });
    this.fold();
    setInterval(() => { if (!this.editing) this.times(); }, 30000);
  }

  /** Asks the daemon. */
  async refresh() {
    const { sessions } = await request("GET", "/sessions");
    this.list = sessions.map((s) => ({ ...s, at: typeof s.updated_at === "number" ? s.updated_at : Date.parse(s.updated_at) }))
      .sort((a, b) => b.at - a.at);
    this.known = true;
    this.draw();
  }

  title(id) {
    const known = this.list.find((s) => s.chat_id === id);
    return known?.title || t(id === "main" ? "main" : "untitled");
  }

  draw() {
    if (this.editing) return;
    const focused = document.activeElement?.closest?.(".session")?.dataset.id;
    const kind = document.activeElement?.dataset?.act;
    const rows = this.list.some((s) => s.chat_id === this.current) || !this.current ? this.list
      : [{ chat_id: this.current, title: "", at: NaN }, ...this.list];
    $("list").replaceChildren(...rows.map((s) => this.row(s)));
    if (!rows.length) $("list").append(make("li", { class: "empty-list" }, t(this.known ? "sessions.none" : "sessions.away")));
    if (focused) $("list").querySelector(`[data-id="${focused}"] [data-act="${kind}"]`)?.focus();
    $("title").textContent = this.title(this.current);
    document.title = `${this.title(this.current)} · crayfish`;
  }

  row(session) {
    const id = session.chat_id;
    const title = this.title(id);
    const isCurrent = id === this.current;
    const when = Number.isFinite(session.at) ? ago(session.at) : "";
    const open = make("button", {
      type: "button", class: "open", "data-act": "open", "aria-current": isCurrent ? "true" : null,
      onclick: () => { this.close(); this.on.open(id); },
    }, make("b", { dir: "auto" }, title), when ? make("small", { "data-varies": "", "data-at": session.at }, when) : null);
    const row = make("li", { class: "session", "data-id": id, "data-current": isCurrent ? "true" : null }, open);
    if (!Number.isFinite(session.at)) return row;
    const rename = button("edit", "", {
      "data-act": "rename", "aria-label": t("rename", { title }), title: t("rename", { title }), onclick: () => this.rename(row, session),
    });
    const remove = button("trash", "", {
      "data-act": "delete", "aria-label": t("delete", { title }), title: t("delete", { title }), onclick: () => this.remove(session),
    });
    row.append(make("div", { class: "acts" }, rename, remove));
    return row;
  }

  times() {
    for (const node of $("list").querySelectorAll("small[data-at]")) {
      const at = Number(node.dataset.at);
      if (Number.isFinite(at)) node.textContent = ago(at);
    }
  }

  rename(row, session) {
    const field = make("input", { type: "text", dir: "auto", maxlength: 200, "aria-label": t("rename.label") });
    field.value = this.title(session.chat_id);
    this.editing = field;
    const end = async (save) => {
      if (this.editing !== field) return;
      this.editing = null;
      const title = field.value.trim();
      if (save && title && title !== this.title(session.chat_id)) {
        try {
          await request("PATCH", `/sessions/${encodeURIComponent(session.chat_id)}`, { title });
          session.title = title;
        } catch (error) {
          this.on.failed(error);
        }
      }
      this.draw();
      $("list").querySelector(`[data-id="${session.chat_id}"] [data-act="rename"]`)?.focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.isComposing) { event.preventDefault(); end(true); }
      if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); end(false); }
    });
    field.addEventListener("blur", () => end(true));
    row.replaceChildren(field);
    field.focus();
    field.select();
  }

  async remove(session) {
    const title = this.title(session.chat_id);
    $("confirm-title").textContent = t("delete.title");
    $("confirm-text").textContent = t("delete.text", { title });
    const sheet = $("confirm");
    sheet.returnValue = "no";
    sheet.showModal();
    await new Promise((closed) => sheet.addEventListener("close", closed, { once: true }));
    if (sheet.returnValue !== "yes") return;
    try {
      await request("DELETE", `/sessions/${encodeURIComponent(session.chat_id)}`);
    } catch (error) {
      this.on.failed(error);
      return;
    }
    this.list = this.list.filter((s) => s !== session);
    this.on.gone(session.chat_id);
    this.draw();
    ($("list").querySelector(".open") ?? $("new")).focus();
  }

  arrows(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || this.editing) return;
    const all = [...$("list").querySelectorAll(".open")];
    const at = all.indexOf(document.activeElement?.closest(".session")?.querySelector(".open"));
    event.preventDefault();
    all[Math.max(0, Math.min(all.length - 1, at + step))]?.focus();
  }

  /** Ctrl+K: to the list, wherever it is; from the list, back. */
  summon() {
    if (this.side.contains(document.activeElement)) { this.close(); $("text").focus(); return; }
    if (narrow.matches) this.side.classList.add("over"), ($("scrim").hidden = false);
    else if (this.folded) { this.folded = false; this.fold(); }
    this.said();
    ($("list").querySelector("[aria-current]") ?? $("list").querySelector(".open") ?? $("new")).focus();
  }

  toggle() {
    if (narrow.matches) { this.summon(); return; }
    this.folded = !this.folded;
    write("folded", this.folded ? "yes" : null);
    this.fold();
  }

  fold() {
    this.side.classList.toggle("folded", this.folded && !narrow.matches);
    this.said();
  }

  get isOver() { return this.side.classList.contains("over"); }

  close(back = false) {
    const wasOver = this.isOver;
    this.side.classList.remove("over");
    $("scrim").hidden = true;
    this.said();
    if (wasOver && back) $("menu").focus();
    return wasOver;
  }

  said() {
    const open = narrow.matches ? this.isOver : !this.folded;
    const label = t(open ? "sessions.hide" : "sessions.show");
    $("menu").setAttribute("aria-expanded", String(open));
    $("menu").setAttribute("aria-label", label);
    $("menu").title = label;
  }

  failed(error) { tell(t("failed.list", { why: error.message })); }
}
