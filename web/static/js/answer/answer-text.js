// The text of one answer. While it grows only its end is read again, and of that only what has
// changed becomes new elements; when it has ended it is read as a whole once, with the citations,
// and what differs is replaced a little at a time.

import { parse } from "./blocks.js";
import { chipCitations, markCitations, nameChips, withoutCitationMarks } from "./citations.js";
import { prepareHighlighter } from "./code-blocks.js";
import { forgetFrame, onRender } from "../frames.js";
import { prepareMath } from "./math.js";
import { Pieces } from "./pieces.js";
import { markSeams } from "./seam-places.js";
import { BUDGET_MS, Deadline, slices as shared } from "./slices.js";

const MATH = /\$\$|\$[^\s\d]|\\[([]/;
const FENCE = /```|~~~/;
/** A text that is slow to read is read less often: at most this share of the time goes into it. */
const MOST_BUSY = 1 / 3;

let numTexts = 0;

export class AnswerText {
  #root;
  #question;
  #slices;
  #pieces;
  #passages = new Map();
  #citations = null;
  #source = "";
  /** Seams that stand above the block at their offset. */
  #lines = [];
  /** Of the source, what its next parts can no longer change, how many pieces that is, and the link
   * definitions in it. */
  #frozen = "";
  #numFrozen = 0;
  #references = {};
  #lastPass = { end: 0, ms: 0 };
  #settling = null;
  #settledAs = null;
  #pass = () => this.#grow();
  /** Newer texts are settled first, all of them behind what has the usual priority. */
  #priority = 1 / ++numTexts;

  /** `question`: the text that is answered. `slices`: the queue for what can wait. */
  constructor(root, question, slices = shared) {
    this.#root = root;
    this.#question = question;
    this.#slices = slices;
    this.#pieces = new Pieces(root, (fragment) => this.#dress(fragment));
  }

  /**
   * Shows `text` while it is being written; `seams` are offsets where continuations begin,
   * `passages` what may be cited. Call it in a frame, at most once in each; it takes a few
   * milliseconds and goes on in the next frame by itself if there is more to do. The text may also
   * have become shorter, or another one.
   */
  grow(text, seams, passages) {
    this.#cancelSettling();
    this.#settledAs = null;
    delete this.#root.dataset.settled;
    this.#take(markCitations(text, seams, null), passages, null, false);
    this.#grow();
  }

  /**
   * Shows the whole `text` with the server's `citations`. Returns a promise that is kept when all
   * of it stands, true unless something else was to be shown meanwhile; the root then has
   * `data-settled`. Formulas and colours of code may come a little later.
   */
  settle(text, seams, passages, citations) {
    const marked = markCitations(text, seams, citations);
    const key = JSON.stringify([marked, [...passages.keys()], citations?.map(({ n }) => n)]);
    if (this.#settledAs?.key === key) return this.#settledAs.promise;
    this.#cancelSettling();
    forgetFrame(this.#pass);
    delete this.#root.dataset.settled;
    this.#take(marked, passages, citations, true);
    const promise = new Promise((resolve) => {
      const steps = this.#settle();
      const job = this.#slices.add(
        (deadline) => {
          if (!steps.next(deadline).done) return true;
          this.#settling = null;
          this.#root.dataset.settled = "";
          resolve(true);
          return false;
        },
        { priority: this.#priority },
      );
      this.#settling = { cancel: () => (job.cancel(), resolve(false)) };
    });
    this.#settledAs = { key, promise };
    return promise;
  }

  /** The language has changed. */
  refresh() {
    nameChips(this.#root, this.#passages);
  }

  /** Nothing more will be shown. */
  dispose() {
    forgetFrame(this.#pass);
    this.#cancelSettling();
  }

  #cancelSettling() {
    this.#settling?.cancel();
    this.#settling = null;
  }

  #take(marked, passages, citations, isWhole) {
    if ([...passages.keys()].join() !== [...this.#passages.keys()].join()) this.#clear();
    this.#passages = passages;
    this.#citations = citations;
    const { text, lines } = markSeams(marked.text, marked.seams, isWhole);
    const source = text.replaceAll("\0", "").replace(/\r\n?/g, "\n");
    const added = source.slice(source.startsWith(this.#source) ? Math.max(0, this.#source.length - 2) : 0);
    if (MATH.test(added)) prepareMath();
    if (FENCE.test(added)) prepareHighlighter();
    this.#source = source;
    this.#lines = lines;
  }

  #clear() {
    this.#pieces.clear();
    this.#thaw();
  }

  #thaw() {
    this.#frozen = "";
    this.#numFrozen = 0;
    this.#references = {};
  }

  #grow() {
    if (this.#settling !== null) return;
    const begin = performance.now();
    if (begin < this.#lastPass.end + this.#lastPass.ms * (1 / MOST_BUSY - 1)) {
      onRender(this.#pass);
      return;
    }
    if (!this.#source.startsWith(this.#frozen)) this.#thaw();
    const from = this.#frozen.length;
    const { blocks } = parse(this.#source.slice(from), { references: this.#references });
    const numOpen = blocks.length === 1 || blocks.at(-1)?.firstLineEnds ? 1 : 2;
    const openStart = blocks.at(-numOpen)?.start ?? 0;
    const entries = this.#withSeamLines(blocks, from);
    const pieces = entries.map(({ piece }) => piece);
    const numDone = this.#pieces.update(pieces, new Deadline(), this.#numFrozen) - this.#numFrozen;
    // A block is finished when the next one has a whole line: until then that line could still turn
    // out to belong to it ("2" after "1. one" may become "2. two").
    const firstOpen = entries.findIndex((entry, index) => index >= numDone || entry.start >= openStart);
    if (firstOpen > 0) this.#freeze(firstOpen, entries[firstOpen].start);
    const end = performance.now();
    this.#lastPass = { end, ms: end - begin > BUDGET_MS ? end - begin : 0 };
    if (numDone < pieces.length) onRender(this.#pass);
  }

  #freeze(numPieces, length) {
    const chunk = this.#source.slice(this.#frozen.length, this.#frozen.length + length);
    if (chunk.includes("]:")) ({ references: this.#references } = parse(chunk, { references: this.#references }));
    this.#frozen += chunk;
    this.#numFrozen += numPieces;
  }

  /** `blocks` of the source from `from` on, with the seams that stand above one. */
  #withSeamLines(blocks, from) {
    const entries = [...blocks];
    for (const line of this.#lines) {
      const index = entries.findLastIndex(({ start }) => from + start <= line);
      if (index >= 0) entries.splice(index, 0, { start: entries[index].start, firstLineEnds: true, piece: { kind: "seamLine" } });
    }
    return entries;
  }

  /** A generator that is given a deadline for each step. */
  *#settle() {
    let deadline = new Deadline();
    const { blocks, references } = parse(this.#source, { isWhole: true });
    const entries = this.#withSeamLines(blocks, 0);
    const pieces = entries.map(({ piece }) => piece);
    if (this.#pieces.length === pieces.length) {
      const changed = [...pieces.keys()].filter((index) => !this.#pieces.isShown(index, pieces[index]));
      for (const index of this.#nearestFirst(changed)) {
        while (!this.#pieces.updateOne(index, pieces[index], deadline)) deadline = yield;
      }
    } else {
      while (this.#pieces.update(pieces, deadline) < pieces.length) deadline = yield;
    }
    // What is written after a Continue finds these pieces, chips and all.
    const numFrozen = Math.max(0, entries.length - 2);
    this.#frozen = withoutCitationMarks(this.#source.slice(0, entries[numFrozen]?.start ?? 0));
    this.#numFrozen = numFrozen;
    this.#references = references;
  }

  /** The numbers of pieces, those first that stand in the window or near it. */
  #nearestFirst(indices) {
    const middle = innerHeight / 2;
    const distances = new Map(
      indices.map((index) => {
        const { top, bottom } = this.#pieces.place(index);
        return [index, Math.max(0, top - middle, middle - bottom)];
      }),
    );
    return indices.sort((one, other) => distances.get(one) - distances.get(other));
  }

  #dress(fragment) {
    chipCitations(fragment, { passages: this.#passages, citations: this.#citations, question: this.#question });
  }
}
