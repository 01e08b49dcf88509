// Questions that are not asked yet, kept in the browser: one for each conversation, and what asked
// ones are being changed to. Each tab has its own, which its reload finds; the newest of all is what
// another tab begins with.

import { keep, kept, keptKeys } from "../preferences.js";

const PREFIX = "lectern.draft.";
const EDIT = "lectern.edit.";
const NEW = "new";
const STORAGES = ["sessionStorage", "localStorage"];
const DAYS_KEPT = 30;
const DAY_MS = 86_400_000;

/** The draft of a conversation (null: of the next new one), "" where there is none. */
export function draftOf(conversation) {
  return read(PREFIX + (conversation ?? NEW)).text;
}

/** Keeps it; "" removes it. */
export function keepDraft(conversation, text) {
  write(PREFIX + (conversation ?? NEW), text);
}

/** What a question is being changed to, "" where it is not. One that is not stored has its key, and
 * its conversation may have no id. */
export function editOf(conversation, question) {
  return read(editKey(conversation, question)).text;
}

/** Keeps it; "" removes it. */
export function keepEdit(conversation, question, text) {
  write(editKey(conversation, question), text);
}

/** What questions of a conversation are being changed to. */
export function editsOf(conversation) {
  return keysOf(editKey(conversation, "")).map((key) => read(key).text);
}

/** A conversation is no more: nothing is asked in it. */
export function forgetDrafts(conversation) {
  for (const key of [PREFIX + conversation, ...keysOf(editKey(conversation, ""))]) {
    for (const storage of STORAGES) keep(storage, key, null);
  }
}

/** Removes what no tab has touched for `days`. */
export function pruneDrafts(days = DAYS_KEPT) {
  const oldest = Date.now() - days * DAY_MS;
  const keys = [PREFIX, EDIT].flatMap((prefix) => keptKeys("localStorage", prefix));
  for (const key of keys) if ((readFrom("localStorage", key)?.at ?? 0) < oldest) keep("localStorage", key, null);
}

function editKey(conversation, question) {
  return `${EDIT}${conversation}.${question}`;
}

function keysOf(prefix) {
  return [...new Set(STORAGES.flatMap((storage) => keptKeys(storage, prefix)))];
}

function write(key, text) {
  const before = read(key).text;
  const value = text && JSON.stringify({ text, at: Date.now() });
  keep("sessionStorage", key, value);
  // What another tab has written since stays.
  if (text !== "" || readFrom("localStorage", key)?.text === before) keep("localStorage", key, value);
}

function read(key) {
  return readFrom("sessionStorage", key) ?? readFrom("localStorage", key) ?? { text: "" };
}

function readFrom(storage, key) {
  try {
    const { text, at } = JSON.parse(kept(storage, key));
    return { text: String(text), at: Number(at) };
  } catch {
    return null;
  }
}
