// Marks sentences of a source in what was made of it: the text has become elements, so that a
// sentence is looked for by its letters.

import { element } from "../elements.js";

/** What Markdown may write between letters, and what it does not show. */
const UNSEEN = /[\s*_`~#|>\\[\]()-]/;
const ADDRESS = /\]\([^)\s]{0,2000}\)/g;

/** Marks each of `texts` below `root` where it is found; the first mark, or null. */
export function markTexts(root, texts) {
  const marks = texts.flatMap((text) => markText(root, text));
  return marks[0] ?? null;
}

function markText(root, text) {
  const wanted = letters(text.replace(ADDRESS, "]"));
  if (wanted === "") return [];
  const places = [];
  let found = "";
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    for (let at = 0; at < node.data.length; at += 1) {
      const letter = letters(node.data[at]);
      found += letter;
      for (let n = 0; n < letter.length; n += 1) places.push({ node, at });
    }
  }
  const start = found.indexOf(wanted);
  return start < 0 ? [] : wrap(places.slice(start, start + wanted.length));
}

function letters(text) {
  return Array.from(text.normalize("NFKC"))
    .filter((letter) => !UNSEEN.test(letter))
    .join("");
}

/** Puts <mark> around the letters at `places`, a piece for each text node. */
function wrap(places) {
  const spans = new Map();
  for (const { node, at } of places) {
    const span = spans.get(node);
    spans.set(node, span === undefined ? [at, at] : [span[0], at]);
  }
  // Between two pieces there is nothing but what is no letter: it belongs to the sentence.
  return [...spans].map(([node, [first, last]], index) => {
    const range = document.createRange();
    range.setStart(node, index === 0 ? first : 0);
    range.setEnd(node, index === spans.size - 1 ? last + 1 : node.data.length);
    const mark = element("mark", {});
    range.surroundContents(mark);
    return mark;
  });
}
