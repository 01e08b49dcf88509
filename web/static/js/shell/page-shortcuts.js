// What the shortcuts do on the chat's page.

import { stepToQuestion } from "./question-steps.js";
import { copyAnswer, copyCode } from "./quick-copy.js";
import { Shortcuts } from "./shortcuts.js";

/** `area` is what scrolls; `say(text)` announces. */
export function startShortcuts({ chat, composer, sidebar, transcript, panel, area, say, startNew, showHelp }) {
  return new Shortcuts({
    help: showHelp,
    newConversation: startNew,
    search: () => sidebar.search(),
    question: () => composer.focusNow(),
    escape: () => sidebar.close() || stop(chat) || close(panel),
    // In a text these keys move in it, on a Mac.
    previous: () => !composer.isWriting && stepToQuestion(area, -1),
    next: () => !composer.isWriting && stepToQuestion(area, 1),
    copyAnswer: () => copyAnswer(chat.conversation.newestAnswer, say),
    copyCode: () => copyCode(area, say),
    editLast: () => composer.isIdle && transcript.editLast(),
  });
}

function stop(chat) {
  if (!chat.isRunning) return false;
  chat.stop();
  return true;
}

function close(panel) {
  if (!panel.isOpen) return false;
  panel.close();
  return true;
}
