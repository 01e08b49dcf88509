// The page's language: catalogues per language, read at start and on a switch. All pages share one;
// those that are not the chat have one more, which <html data-part> names.

const LANGUAGES = { en: "en", zh: "zh-CN" };
const COOKIE = "lectern_lang";

let current = "en";
let catalogue = {};
const listeners = new Set();
/** What Intl makes is slow to make and quick to use: one for each language and way to write. */
const formatters = new Map();

/** Loads the language that the page was rendered in. */
export async function startLanguage() {
  await load(document.documentElement.dataset.language === "zh" ? "zh" : "en");
}

/** "en" or "zh". */
export function language() {
  return current;
}

/** The value of a `lang` attribute for the page's language. */
export function languageTag() {
  return LANGUAGES[current];
}

/** The string of `key`, with {name} replaced from `values`. A missing key shows as itself. */
export function t(key, values = {}) {
  const text = catalogue[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

/**
 * t() with the form for `count`, which is {count}: `key.one` and the like, by the language's rules
 * of plurals; the key itself is its form for "other".
 */
export function plural(key, count, values = {}) {
  const category = formatter("PluralRules").select(count);
  return t(category === "other" ? key : `${key}.${category}`, { count: number(count), ...values });
}

/** An object of `Intl` for the page's language: formatter("NumberFormat", {style: "percent"}). */
export function formatter(name, options = {}) {
  const key = `${current} ${name} ${JSON.stringify(options)}`;
  if (!formatters.has(key)) formatters.set(key, new Intl[name](languageTag(), options));
  return formatters.get(key);
}

export function number(value, digits = 0) {
  return formatter("NumberFormat", { maximumFractionDigits: digits }).format(value);
}

/** A fraction (0 to 1) in whole per cent. */
export function percent(fraction) {
  return formatter("NumberFormat", { style: "percent", maximumFractionDigits: 0 }).format(fraction);
}

/** Seconds or milliseconds, as short as is honest. */
export function duration(ms) {
  return ms < 1000 ? t("unit.ms", { n: number(ms) }) : t("unit.s", { n: number(ms / 1000, 1) });
}

/** Calls `listener` after each switch of language. */
export function onLanguageChange(listener) {
  listeners.add(listener);
}

/** Changes to `name`. Where its strings cannot be had everything stays as it is: returns false. */
export async function setLanguage(name) {
  try {
    await load(name);
  } catch {
    return false;
  }
  document.cookie = `${COOKIE}=${name}; path=/; max-age=31536000; samesite=lax`;
  document.documentElement.lang = LANGUAGES[name];
  document.documentElement.dataset.language = name;
  translateShell();
  for (const listener of listeners) listener();
  return true;
}

/** Elements of the template name their string in data-t, attributes in data-t-<attribute>. */
function translateShell() {
  for (const node of document.querySelectorAll("[data-t]")) node.textContent = t(node.dataset.t);
  for (const attribute of ["aria-label", "placeholder", "title"]) {
    for (const node of document.querySelectorAll(`[data-t-${attribute}]`)) {
      node.setAttribute(attribute, t(node.getAttribute(`data-t-${attribute}`)));
    }
  }
}

async function load(name) {
  const { part } = document.documentElement.dataset;
  const names = part ? [name, `${part}.${name}`] : [name];
  const parts = await Promise.all(names.map(readCatalogue));
  catalogue = Object.assign({}, ...parts);
  current = name;
}

/** The strings of a catalogue by its name. Raises an error where it is not there. */
export async function readCatalogue(name) {
  const response = await fetch(new URL(`./i18n/${name}.json`, import.meta.url));
  if (!response.ok) throw new Error(`catalogue ${name}: ${response.status}`);
  return response.json();
}
