// Questions that are not asked yet: one for each conversation, kept in the browser.

import { keep, kept, keptKeys } from "../preferences.js";

const PREFIX = "lectern.draft.";
const NEW = "new";
const DAYS_KEPT = 30;
const DAY_MS = 86_400_000;

/** The draft of a conversation (null: of the next new one), "" where there is none. */
export function draftOf(conversation) {
  return read(PREFIX + (conversation ?? NEW)).text;
}

/** Keeps it; "" removes it. */
export function keepDraft(conversation, text) {
  keep("localStorage", PREFIX + (conversation ?? NEW), text && JSON.stringify({ text, at: Date.now() }));
}

/** Removes what has not been touched for `days`. */
export function pruneDrafts(days = DAYS_KEPT) {
  const oldest = Date.now() - days * DAY_MS;
  for (const key of keptKeys("localStorage", PREFIX)) if (read(key).at < oldest) keep("localStorage", key, null);
}

function read(key) {
  try {
    const { text, at } = JSON.parse(kept("localStorage", key));
    return { text: String(text), at: Number(at) };
  } catch {
    return { text: "", at: 0 };
  }
}
