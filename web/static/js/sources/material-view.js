// A part of a material as elements: Markdown as blocks, in steps that leave the page free to react,
// other text as it is.

import { element } from "../elements.js";
import { dressCode } from "../answer/code-blocks.js";
import { parseBlocks, renderBlocks } from "../answer/markdown.js";
import { typeset } from "../answer/math.js";
import { cleaned } from "../answer/seams.js";
import { markTexts } from "./marking.js";
import { isPlain, renderPlain } from "./plain-text.js";

const STEP_MS = 8;
/** Blocks that are rendered together. */
const BLOCKS_A_STEP = 4;

/**
 * Elements of `text`; the passage at `range` (in characters, or null) is in a `.passage-mark`.
 * `isWanted()` is asked between steps: null as soon as it says no.
 */
export async function renderMaterial(text, format, range, isWanted = () => true) {
  if (isPlain(format)) return renderPlain(text, format, range);
  const points = range && Array.from(text);
  const start = range ? cleaned(points.slice(0, range[0]).join("")).length : Infinity;
  const end = range ? cleaned(points.slice(0, range[1]).join("")).length : -1;
  const whole = cleaned(text);
  const blocks = parseBlocks(whole);
  const nodes = [];
  let stepEnd = performance.now() + STEP_MS;
  for (const { isInside, group } of groups(blocks, whole.length, start, end)) {
    nodes.push(dressed(group, isInside));
    if (performance.now() < stepEnd) continue;
    await free();
    if (!isWanted()) return null;
    stepEnd = performance.now() + STEP_MS;
  }
  return nodes;
}

/** Elements of a passage that is shown alone, as Markdown. */
export function renderPassage(text) {
  return dressed(parseBlocks(cleaned(text)), true);
}

/** The same with the sentences that support the answer marked. */
export function renderMarked({ text, marks }) {
  const node = renderPassage(text ?? "");
  markTexts(node, markedTexts({ text, marks }));
  return node;
}

/** The sentences of a passage that support the answer, as they are looked for. */
export function markedTexts({ text, marks }) {
  const points = Array.from(text ?? "");
  return (marks ?? []).map(([start, end]) => cleaned(points.slice(start, end).join("")));
}

/** The blocks of the passage together, the others a few at a time. */
function groups(blocks, length, start, end) {
  const made = [];
  blocks.forEach((block, index) => {
    const blockEnd = blocks[index + 1]?.start ?? length;
    const isInside = block.start < end && blockEnd > start;
    const last = made.at(-1);
    if (last?.isInside === isInside && (isInside || last.group.length < BLOCKS_A_STEP)) last.group.push(block);
    else made.push({ isInside, group: [block] });
  });
  return made;
}

function dressed(blocks, isInside) {
  const node = element("div", { class: isInside ? "passage-mark" : "material-blocks" }, renderBlocks(blocks));
  dressCode(node);
  typeset(node);
  return node;
}

/** Resolves when the browser has had a turn. */
function free() {
  return globalThis.scheduler?.yield?.() ?? new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(null);
  });
}
