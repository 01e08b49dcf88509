// Renaming and deleting a conversation: asked about, done at the server, then told.

import { api } from "../api.js";
import { t } from "../i18n.js";
import { confirm, prompt } from "./dialogs.js";
import { forgetDrafts } from "./drafts.js";

const LONGEST_TITLE = 200;

/** Events: "renamed" (detail: {id, title}), "deleted" (detail: {id}), "failed" (detail: words). */
export class ConversationActions extends EventTarget {
  #deleting = new Set();

  /** Whether it is this page that deletes it. */
  isDeleting(id) {
    return this.#deleting.has(id);
  }

  async rename({ id, title }) {
    const label = t("conversation.title");
    const written = await prompt({ title: t("conversation.renameTitle"), label, value: title, maxLength: LONGEST_TITLE });
    if (written === null || written === title) return;
    await this.#do(async () => {
      const stored = await api.renameConversation(id, written);
      this.#tell("renamed", { id, title: stored.title });
    });
  }

  async remove({ id, title }) {
    const isSure = await confirm({
      title: t("conversation.deleteTitle"),
      subject: title || t("sidebar.untitled"),
      text: t("conversation.deleteText"),
      action: t("conversation.delete"),
    });
    if (!isSure) return;
    this.#deleting.add(id);
    await this.#do(async () => {
      try {
        await api.deleteConversation(id);
      } catch (error) {
        // Deleted elsewhere meanwhile: as was wished.
        if (error.status !== 404) throw error;
      }
      forgetDrafts(id);
      this.#tell("deleted", { id });
    });
    this.#deleting.delete(id);
  }

  async #do(action) {
    try {
      await action();
    } catch (error) {
      this.#tell("failed", error.words ?? String(error));
    }
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
