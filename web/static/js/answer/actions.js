// What a reader can do with an answer, as buttons.

import { element, icon } from "../elements.js";
import { t } from "../i18n.js";

/**
 * By name: icon, label, what it does to (actions, answer), and whether it has to wait until no
 * answer of the conversation runs.
 */
const ACTIONS = {
  continue: { icon: "down", label: "action.continue", run: (to, answer) => to.continueAnswer(answer) },
  raise: {
    icon: "down",
    label: "action.raise",
    // More than there is room for: it then ends where the window does, and says so.
    run: (to, answer) => to.continueAnswer(answer, { maxTokens: answer.context.window }),
  },
  retry: { icon: "retry", label: "action.retry", run: (to, answer) => to.retry(answer) },
  discard: { icon: "close", label: "unsent.discardAction", run: (to, answer) => to.discard(answer), isFree: true },
  regenerate: { icon: "retry", label: "action.regenerate", run: (to, answer) => to.regenerate(answer) },
  carry: { icon: "summary", label: "action.carry", run: (to, answer) => to.carryOn(answer) },
  new: { icon: "plus", label: "action.newConversation", run: (to) => to.newConversation(), isFree: true },
  undo: { icon: "undo", label: "action.undo", hint: "action.undoHint", run: (to, answer) => to.undoSeam(answer) },
};

/**
 * A button for each of `names` (see `describeFinish`; also "regenerate"). `actions`: what they
 * call, and `isBusy()`; `onBusy()` is called in place of an action that has to wait.
 */
export function actionButtons(names, answer, actions, onBusy) {
  return names.map((name) => {
    const { icon: drawing, label, hint, run, isFree = false } = ACTIONS[name];
    const button = element(
      "button",
      { class: "action", type: "button", title: hint ? t(hint) : null, data: { action: name } },
      icon(drawing),
      element("span", {}, t(label)),
    );
    button.addEventListener("click", () => {
      if (!isFree && actions.isBusy?.()) onBusy();
      else runFrom(button, () => run(actions, answer));
    });
    return button;
  });
}

/** Runs what `button` is for. Where that takes the button away, the focus goes to what is written. */
function runFrom(button, run) {
  const transcript = button.closest(".messages");
  run();
  if (button.isConnected || document.activeElement !== document.body) return;
  transcript?.querySelector(".answer[data-state=running]")?.focus({ preventScroll: true });
}
