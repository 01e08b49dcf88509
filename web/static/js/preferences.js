// Theme: the system's, or the reader's choice, kept in a cookie so that the server renders it.

const COOKIE = "lectern_theme";

/** "" (as the system), "light" or "dark". */
export function theme() {
  return document.documentElement.dataset.theme ?? "";
}

/** Goes to the next of the system's, the other one, and the one that the system has now as the reader's
 * own choice, and returns it: the first step is seen. */
export function nextTheme() {
  const isDark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  const order = isDark ? ["", "light", "dark"] : ["", "dark", "light"];
  const next = order[(order.indexOf(theme()) + 1) % order.length];
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  const age = next ? 31536000 : 0;
  document.cookie = `${COOKIE}=${next}; path=/; max-age=${age}; samesite=lax`;
  return next;
}

/** Storage that works where the browser refuses it (private windows): then nothing is kept. */
export function keep(storage, key, value) {
  try {
    if (value === null || value === "") window[storage].removeItem(key);
    else window[storage].setItem(key, value);
  } catch {
    // Nothing to do: what was to be kept lives as long as the page.
  }
}

export function kept(storage, key) {
  try {
    return window[storage].getItem(key);
  } catch {
    return null;
  }
}

const PREFIX = "lectern.";
const OWNER = `${PREFIX}owner`;

/**
 * What people write is kept in the browser until it is sent, and a browser may have several users:
 * from now on what is kept is `user`'s. What somebody else had left is removed; returns whether
 * there was such.
 */
export function claimStorage(user) {
  let isChanged = false;
  for (const storage of ["localStorage", "sessionStorage"]) {
    const owner = kept(storage, OWNER);
    if (owner !== null && owner !== user) {
      forget(storage);
      isChanged = true;
    }
    keep(storage, OWNER, user);
  }
  return isChanged;
}

/** Whether what is kept here is still `user`'s: nobody has logged out since, nor come instead. */
export function ownsStorage(user) {
  return kept("localStorage", OWNER) === user;
}

/** Reads the page anew when the browser shows it as it was left: who was here may have gone since. */
export function reloadWhenShownAgain() {
  window.addEventListener("pageshow", ({ persisted }) => {
    if (!persisted) return;
    document.body.hidden = true;
    location.reload();
  });
}

/** Removes all that the page has kept: whoever comes next may be somebody else. */
export function forgetKept() {
  for (const storage of ["localStorage", "sessionStorage"]) forget(storage);
}

function forget(storage) {
  for (const key of keptKeys(storage)) keep(storage, key, null);
}

/** The names of what is kept whose beginning is `prefix`. */
export function keptKeys(storage, prefix = PREFIX) {
  try {
    return Object.keys(window[storage]).filter((key) => key.startsWith(prefix));
  } catch {
    return [];
  }
}
