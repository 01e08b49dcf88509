// What stands around the transcript and follows it: titles, the welcome, the account.

import { t } from "../i18n.js";
import { showAccount } from "./account.js";
import { courseTitle } from "./sidebar.js";
import { showWelcome } from "./welcome.js";

const find = (selector) => document.querySelector(selector);

export class Frame {
  #chat;
  #opening;
  #leave;

  /** `leave()` logs out. */
  constructor(chat, opening, leave) {
    this.#chat = chat;
    this.#opening = opening;
    this.#leave = leave;
  }

  /** Shows what is so now, in the language of now. */
  refresh() {
    const { conversation } = this.#chat;
    const { course, me } = this.#opening;
    const isEmpty = conversation.messages.length === 0;
    document.body.classList.toggle("is-empty", isEmpty);
    // Nothing may be shown yet, in no course: that is no word about who is in some.
    const { isCourseless } = this.#opening;
    const isWelcome = isEmpty && (course !== null || isCourseless);
    find("#welcome").hidden = !isWelcome;
    if (isWelcome) showWelcome(find("#welcome"), course, (text) => this.#chat.ask(text));
    find("#course-title").textContent = course ? courseTitle(course) : "";
    // An empty one is called what its link is called, for who does not see that it is empty.
    const title = isEmpty ? t("action.newConversation") : conversation.title || t("sidebar.untitled");
    Object.assign(find("#conversation-title"), { textContent: title, title: isEmpty ? "" : title });
    document.title = [conversation.title, course && courseTitle(course), "Lectern"].filter(Boolean).join(" · ");
    showAccount(find("#account"), me, course, this.#leave);
    find(".dock").hidden = isEmpty && isCourseless;
  }
}
