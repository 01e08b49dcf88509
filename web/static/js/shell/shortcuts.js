// The keyboard's ways. One table is what is handled and what the help sheet shows.

const ON_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

/**
 * `keys`: names of KeyboardEvent.key behind modifiers; "Mod" is ⌘ on a Mac and Ctrl elsewhere.
 * None is a letter alone, so none can be pressed by dictating. Those that are `told` only are
 * handled by the box that they are pressed in.
 */
export const SHORTCUTS = [
  { id: "send", keys: "Enter", label: "shortcut.send", told: true },
  { id: "breakLine", keys: "Shift+Enter", label: "shortcut.breakLine", told: true },
  { id: "editLast", keys: "ArrowUp", label: "shortcut.editLast" },
  { id: "escape", keys: "Escape", label: "shortcut.escape" },
  { id: "question", keys: "Shift+Escape", label: "shortcut.question" },
  { id: "previous", keys: "Alt+ArrowUp", label: "shortcut.previous" },
  { id: "next", keys: "Alt+ArrowDown", label: "shortcut.next" },
  { id: "copyAnswer", keys: "Mod+Shift+Y", label: "shortcut.copyAnswer" },
  { id: "copyCode", keys: "Mod+Shift+;", label: "shortcut.copyCode" },
  { id: "newConversation", keys: "Mod+Shift+O", label: "shortcut.newConversation" },
  { id: "search", keys: "Mod+K", label: "shortcut.search" },
  { id: "help", keys: "Mod+/", label: "shortcut.help" },
];

/** Where the shifted sign of a key stands on some keyboards, the key's own name is in `code`. */
const CODES = { ";": "Semicolon", "/": "Slash" };
const NAMES = { Mod: "Ctrl", ArrowUp: "↑", ArrowDown: "↓", Escape: "Esc" };
const MAC_NAMES = { ...NAMES, Mod: "⌘", Shift: "⇧", Alt: "⌥", Enter: "↩" };

/** The names of a shortcut's keys as they stand on the reader's keyboard. */
export function keyNames({ keys }, isMac = ON_MAC) {
  return keys.split("+").map((key) => (isMac ? MAC_NAMES : NAMES)[key] ?? key);
}

export class Shortcuts {
  #handlers;

  /** `handlers`: by id; each is called with the event, and returns false where it does not apply. */
  constructor(handlers) {
    this.#handlers = handlers;
    document.addEventListener("keydown", (event) => this.#pressed(event));
  }

  #pressed(event) {
    if (event.defaultPrevented || event.isComposing || event.keyCode === 229) return;
    // What is open above the page has its own keys.
    if (document.querySelector(":modal, :popover-open") !== null) return;
    const shortcut = SHORTCUTS.find((known) => !known.told && isPressed(known.keys, event));
    const handler = shortcut && this.#handlers[shortcut.id];
    if (!handler || handler(event) === false) return;
    event.preventDefault();
  }
}

function isPressed(keys, event) {
  const names = keys.split("+");
  const key = names.pop();
  const has = (name) => names.includes(name);
  const isSign = key in CODES;
  if (isSign ? event.key !== key && event.code !== CODES[key] : !isNamed(key, event)) return false;
  const { ctrlKey, metaKey, shiftKey, altKey } = event;
  const [mod, other] = ON_MAC ? [metaKey, ctrlKey] : [ctrlKey, metaKey];
  // Some keyboards have the slash above another sign.
  const shifts = shiftKey === has("Shift") || (key === "/" && event.key === key);
  return mod === has("Mod") && !other && altKey === has("Alt") && shifts;
}

/** Letters by their key where the keyboard's own are no Latin ones. */
function isNamed(key, event) {
  if (key.length > 1) return event.key === key;
  return event.key.toUpperCase() === key || (event.code === `Key${key}` && !/[a-z]/i.test(event.key));
}
