// Markdown to DOM. Raw HTML stays text, images are never loaded, and all HTML that markdown-it makes
// passes DOMPurify with a short list of elements before it becomes part of the page.

import MarkdownIt from "../../vendor/markdown-it-15.0.3/markdown-it.esm.min.mjs";
import "../../vendor/dompurify-3.5.0/purify.min.js";
import { mathRules, withoutMarks } from "./math.js";

// Its package has no small module: the script leaves its name in the page.
const { DOMPurify } = globalThis;

const PLAIN_ATTRIBUTES = [
  "title", "start", "rel", "target", "tabindex", "data-tex", "data-display", "data-language",
  "data-closed",
];
const SANITIZE = {
  ALLOWED_TAGS: [
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "em", "strong", "s", "code", "pre", "ul", "ol", "li",
    "table", "thead", "tbody", "tr", "th", "td", "a", "blockquote", "hr", "br", "span", "div",
  ],
  ALLOWED_ATTR: ["href", "class", ...PLAIN_ATTRIBUTES],
  // Their values are no addresses, and need not look like one.
  ADD_URI_SAFE_ATTR: PLAIN_ATTRIBUTES,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  RETURN_DOM_FRAGMENT: true,
};
const HIGHLIGHTED = {
  ALLOWED_TAGS: ["span"],
  ALLOWED_ATTR: ["class"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};

export const markdown = new MarkdownIt({ html: false, linkify: true, breaks: false, typographer: false });
markdown.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
markdown.use(mathRules);

const normalizeLink = markdown.normalizeLink.bind(markdown);
markdown.normalizeLink = (url) => normalizeLink(withoutMarks(url));
markdown.validateLink = (url) => /^(?:https?:|mailto:)/i.test(url.trim());

const { escapeHtml } = markdown.utils;

markdown.renderer.rules.link_open = (tokens, index, options, env, self) => {
  tokens[index].attrSet("rel", "noopener noreferrer nofollow");
  tokens[index].attrSet("target", "_blank");
  const { markup } = tokens[index];
  const isBare = markup === "linkify" || markup === "autolink" || tokens[index + 1]?.content === tokens[index].attrGet("href");
  // On paper the address stands behind the text of a link.
  if (isBare) tokens[index].attrJoin("class", "bare-address");
  return self.renderToken(tokens, index, options);
};
// An image address would tell a stranger who reads the answer: it becomes a link.
markdown.renderer.rules.image = (tokens, index) => {
  const token = tokens[index];
  const url = token.attrGet("src") ?? "";
  const label = escapeHtml(token.content || url);
  if (!markdown.validateLink(url)) return label;
  return `<a href="${escapeHtml(url)}" rel="noopener noreferrer nofollow" target="_blank">${label}</a>`;
};
// The page's own headings end with the question and the answer; those of a text come below them.
markdown.renderer.rules.heading_open = (tokens, index) => {
  const level = Number(tokens[index].tag[1]);
  return `<h${Math.min(level + 2, 6)} class="heading-${level}">`;
};
markdown.renderer.rules.heading_close = (tokens, index) => `</h${Math.min(Number(tokens[index].tag[1]) + 2, 6)}>`;
markdown.renderer.rules.fence = (tokens, index, options, env) => {
  const token = tokens[index];
  return codeHtml(token.content, languageOf(token), isClosedFence(token, env.lines));
};
markdown.renderer.rules.code_block = (tokens, index) => codeHtml(tokens[index].content, "", true);
markdown.renderer.rules.table_open = () => '<div class="table-scroll" tabindex="0"><table>';
markdown.renderer.rules.table_close = () => "</table></div>";
// markdown-it writes the alignment of a column as a style attribute, which the page's policy bars.
for (const rule of ["th_open", "td_open"]) {
  markdown.renderer.rules[rule] = (tokens, index) => {
    const align = /text-align:\s*(left|center|right)/.exec(tokens[index].attrGet("style") ?? "");
    return `<${tokens[index].tag}${align ? ` class="align-${align[1]}"` : ""}>`;
  };
}

function codeHtml(content, language, closed) {
  return (
    `<div class="code" data-language="${escapeHtml(language)}" data-closed="${closed}">` +
    `<pre><code>${escapeHtml(content)}</code></pre></div>`
  );
}

/** The language that a fence names. */
export function languageOf(token) {
  return withoutMarks(markdown.utils.unescapeAll(token.info).trim().split(/\s+/)[0]);
}

/** Whether a fence has its closing line (else it runs to the end of the text so far). */
export function isClosedFence(token, lines) {
  const last = lines[token.map[1] - 1] ?? "";
  if (token.map[1] - token.map[0] < 2) return false;
  const bare = last.replace(/^[\s>]*/, "").trimEnd();
  return bare.length >= token.markup.length && bare === token.markup[0].repeat(bare.length);
}

/** The top-level blocks of a text: [{start, tokens, env}], `start` the offset in `text` where the
 * block begins. */
export function parseBlocks(text) {
  const env = { lines: text.split("\n") };
  const offsets = [0];
  for (const line of env.lines) offsets.push(offsets.at(-1) + line.length + 1);
  const blocks = [];
  let depth = 0;
  for (const token of markdown.parse(text, env)) {
    if (depth === 0) {
      const line = token.map?.[0] ?? 0;
      blocks.push({ start: offsets[line], tokens: [], env });
    }
    blocks.at(-1).tokens.push(token);
    depth += token.nesting;
  }
  return blocks;
}

/** DOM of blocks from parseBlocks, safe to put into the page. */
export function renderBlocks(blocks) {
  const html = blocks.map(({ tokens, env }) => markdown.renderer.render(tokens, markdown.options, env)).join("");
  return DOMPurify.sanitize(html, SANITIZE);
}

/** DOM of HTML that markdown-it made, safe to put into the page. */
export function sanitizedFragment(html) {
  return DOMPurify.sanitize(html, SANITIZE);
}

/** The same for one row of a table, which has no meaning outside of one. */
export function rowFragment(html) {
  const table = sanitizedFragment(`<table><tbody>${html}</tbody></table>`);
  const fragment = new DocumentFragment();
  fragment.append(...table.querySelectorAll("tr"));
  return fragment;
}

/** DOM of a highlighter's HTML: spans with classes and nothing else. */
export function sanitizeHighlighted(html) {
  return DOMPurify.sanitize(html, HIGHLIGHTED);
}
