// A Markdown text as a tree of pieces: what of a growing text is still the same can then stay as it
// is. Pieces are plain values:
//
//   {kind: "element", tag, attributes, children}   of a fixed set of tags
//   {kind: "text", text}                           with marks of citations and seams
//   {kind: "inlineCode", text}
//   {kind: "code", language, source, isClosed}
//   {kind: "math", tex, isDisplay, isBlock, isOpen}
//   {kind: "html", html, isRow}                    what markdown-it made, to be sanitized
//   {kind: "seamLine"}

import { withoutCitationMarks } from "./citations.js";
import { isClosedFence, languageOf, markdown } from "./markdown.js";
import { withoutMarks } from "./math.js";

/** Behind a bracket that may close the name of a source: what follows does not change it. */
const BEHIND_CITATION = /(?<=[\]】])(?=\s)/;

/**
 * {blocks, references}: the top-level blocks of a text and the link definitions known at its end.
 * A block is {start, firstLineEnds, piece}: `start` is the offset in `text` where it begins,
 * `firstLineEnds` whether its first line is complete. `references` are definitions from before the
 * text. In a text that `isWhole` a fence needs no closing line.
 */
export function parse(text, { references = {}, isWhole = false } = {}) {
  const env = { lines: text.split("\n"), references: { ...references } };
  const starts = [0];
  for (const line of env.lines) starts.push(starts.at(-1) + line.length + 1);
  const reader = { tokens: markdown.parse(text, env), at: 0, env, isWhole };
  const blocks = [];
  while (reader.at < reader.tokens.length) {
    const line = reader.tokens[reader.at].map?.[0] ?? 0;
    const [piece] = block(reader);
    blocks.push({ start: starts[line], firstLineEnds: line < env.lines.length - 1, piece });
  }
  return { blocks, references: env.references };
}

/** The pieces of the block at `reader.at`, which moves behind it. */
function block(reader) {
  const token = reader.tokens[reader.at];
  reader.at += 1;
  if (token.type === "inline") return inline(token.children, reader.env);
  if (token.type === "fence" || token.type === "code_block") return [code(token, reader)];
  if (token.type === "math") return [math(token)];
  if (token.type === "tr_open") return [row(reader)];
  if (token.nesting === 0) return [elementPiece(token.tag, {}, [])];
  const children = [];
  while (reader.tokens[reader.at].nesting !== -1) children.push(...block(reader));
  reader.at += 1;
  // The text of a list without blank lines stands in its item.
  if (token.hidden) return children;
  return [container(token, children)];
}

function container(token, children) {
  const { tag } = token;
  if (token.type === "heading_open") {
    // The page's own headings end with the question and the answer; those of a text come below.
    const level = Number(tag[1]);
    return elementPiece(`h${Math.min(level + 2, 6)}`, { class: `heading-${level}` }, children);
  }
  if (token.type === "table_open") {
    return elementPiece("div", { class: "table-scroll", tabindex: "0" }, [elementPiece("table", {}, children)]);
  }
  const start = token.type === "ordered_list_open" ? token.attrGet("start") : null;
  return elementPiece(tag, start === null ? {} : { start: String(start) }, children);
}

function code(token, { env, isWhole }) {
  const isFence = token.type === "fence";
  return {
    kind: "code",
    language: isFence ? languageOf(token) : "",
    source: withoutCitationMarks(token.content),
    isClosed: isWhole || !isFence || isClosedFence(token, env.lines),
  };
}

function math({ content, meta }) {
  return { kind: "math", tex: withoutMarks(content), isDisplay: meta.isDisplay, isBlock: meta.isBlock, isOpen: meta.isOpen ?? false };
}

function row(reader) {
  const from = reader.at - 1;
  while (reader.tokens[reader.at].type !== "tr_close") reader.at += 1;
  reader.at += 1;
  return html(reader.tokens.slice(from, reader.at), reader.env, true);
}

function html(tokens, env, isRow = false) {
  return { kind: "html", html: markdown.renderer.render(tokens, markdown.options, env), isRow };
}

/** The pieces of a line of text: an emphasis or a link with all that it holds is one. */
function inline(tokens, env) {
  const pieces = [];
  let text = "";
  const endText = () => {
    pieces.push(...text.split(BEHIND_CITATION).filter(Boolean).map((part) => ({ kind: "text", text: part })));
    text = "";
  };
  for (let at = 0; at < tokens.length; at += 1) {
    const token = tokens[at];
    if (token.type === "text") text += token.content;
    else if (token.type === "softbreak") text += "\n";
    else {
      endText();
      if (token.type === "code_inline") pieces.push({ kind: "inlineCode", text: token.content });
      else if (token.type === "math") pieces.push(math(token));
      else if (token.type === "hardbreak") pieces.push(elementPiece("br", {}, []));
      else {
        const end = groupEnd(tokens, at);
        const group = tokens.slice(at, end);
        pieces.push({ kind: "html", html: markdown.renderer.renderInline(group, markdown.options, env), isRow: false });
        at = end - 1;
      }
    }
  }
  endText();
  return pieces;
}

function groupEnd(tokens, from) {
  let depth = 0;
  for (let at = from; at < tokens.length; at += 1) {
    depth += tokens[at].nesting;
    if (depth <= 0) return at + 1;
  }
  return tokens.length;
}

function elementPiece(tag, attributes, children) {
  return { kind: "element", tag, attributes, children };
}
