// The views of the page and their addresses: `#` and the name of a conversation is Talk with it,
// `#/` and its own name any other view. Each view is the element `view-NAME`.
import { $ } from "./dom.js";

const CONVERSATION = /^[A-Za-z0-9_:-]{1,64}$/;

export class Views {
  /** `names`: the views there are, `talk` among them. `on`: talk(id), the address asks for it. */
  constructor(names, on) {
    this.names = names;
    this.on = on;
    this.shown = "talk";
    addEventListener("hashchange", () => this.follow());
  }

  /** The conversation that the address names, if it names one. */
  get conversation() {
    const id = location.hash.slice(1);
    return CONVERSATION.test(id) ? id : null;
  }

  /** Goes where the address points; one that points nowhere changes nothing. */
  follow() {
    const name = location.hash.slice(2);
    if (location.hash.startsWith("#/") && this.names.includes(name)) this.show(name);
    else if (this.conversation) this.on.talk(this.conversation);
  }

  /** Talk, with this conversation; no step of its own for the browser's way back. */
  talk(id) {
    this.show("talk");
    if (this.conversation !== id) history.replaceState(null, "", `#${id}`);
  }

  show(name) {
    this.shown = name;
    for (const each of this.names) $(`view-${each}`).hidden = each !== name;
  }
}
