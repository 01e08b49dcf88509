// What happens to conversations as such, here or on another device: a new title, an end. The list,
// the titles and the chat follow.

import { t } from "../i18n.js";
import { editsOf, forgetDrafts } from "./drafts.js";

/**
 * `startNew()` leaves a conversation that was deleted here, `listConversations()` reads their list
 * again, `say(text)` announces.
 */
export function followConversations({ actions, chat, composer, transcript, sidebar, opening, frame, startNew, listConversations, say }) {
  const relink = (id, title) => chat.conversation.renameLink(id, title) && transcript.updateLinks();
  const renamed = (id, title) => {
    sidebar.rename(id, title);
    if (id === chat.conversation.id) chat.conversation.title = title;
    else relink(id, title);
    frame.refresh();
  };
  actions.addEventListener("renamed", ({ detail }) => renamed(detail.id, detail.title));
  actions.addEventListener("deleted", ({ detail }) => {
    sidebar.remove(detail.id);
    if (detail.id === chat.conversation.id) startNew();
    else relink(detail.id, null);
    say(t("conversation.deleted"));
  });
  // A new conversation is called after its question, by the server.
  sidebar.addEventListener("listed", ({ detail }) => {
    const shown = detail.find(({ id }) => id === chat.conversation.id);
    if (shown !== undefined && shown.title !== chat.conversation.title) renamed(shown.id, shown.title);
  });
  chat.peers.addEventListener("opened", listConversations);
  chat.peers.addEventListener("changed", ({ detail }) => renamed(detail.conversation, detail.title));
  chat.peers.addEventListener("deleted", ({ detail }) => {
    sidebar.remove(detail.conversation);
    relink(detail.conversation, null);
  });
  chat.addEventListener("gone", ({ detail }) => {
    // What is deleted here is told to this page too.
    if (actions.isDeleting(detail.conversation)) return;
    // What its reader has written there and nobody has answered is theirs still.
    const edits = new Set([...editsOf(detail.conversation), ...transcript.written]);
    const written = [...chat.conversation.unsentTexts, ...edits, composer.text];
    composer.dropDraft();
    forgetDrafts(detail.conversation);
    opening.gone(t("conversation.gone"));
    composer.text = [composer.text, ...written].filter(Boolean).join("\n\n");
  });
}
