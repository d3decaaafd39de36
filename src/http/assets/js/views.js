// The views of the page and their addresses: `#` and the name of a conversation is Talk with it,
// `#/` and its own name any other view. Each view is the element `view-NAME`, and each has a link
// in the one navigation; a view without its element has no link.
import { $, make } from "./dom.js";
import { t } from "./words.js";

const CONVERSATION = /^[A-Za-z0-9_:-]{1,64}$/;

export class Views {
  /** `names`: the views there are, `talk` among them. `on`: talk(id), the address asks for it;
   *  shown(name), this view is on the screen now. */
  constructor(names, on) {
    this.names = names;
    this.on = on;
    this.shown = "talk";
    this.links = new Map(names.map((name) => [name, make("a", { href: `#/${name}`, "data-t": `view.${name}` }, t(`view.${name}`))]));
    $("views").append(...this.links.values());
    addEventListener("hashchange", () => this.follow());
  }

  /** The conversation that the address names, if it names one. */
  get conversation() {
    const id = location.hash.slice(1);
    return CONVERSATION.test(id) ? id : null;
  }

  /** The view that the address names, if it names one. */
  get asked() {
    const name = location.hash.slice(2);
    return location.hash.startsWith("#/") && this.names.includes(name) ? name : null;
  }

  /** Goes where the address points; one that points nowhere changes nothing. */
  follow() {
    if (this.asked) this.show(this.asked);
    else if (this.conversation) this.on.talk(this.conversation);
  }

  /** Talk, with this conversation; no step of its own for the browser's way back. */
  talk(id) {
    this.links.get("talk").href = `#${id}`;
    this.show("talk");
    if (this.conversation !== id) history.replaceState(null, "", `#${id}`);
  }

  show(name) {
    this.shown = name;
    for (const [each, link] of this.links) {
      $(`view-${each}`).hidden = each !== name;
      if (each === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.on.shown(name);
  }
}
