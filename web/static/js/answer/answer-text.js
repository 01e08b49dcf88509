// The text of one answer while it grows: finished blocks are made once and stay; only the last
// block is made again.

import { chipCitations, markCitations } from "./citations.js";
import { closeCode, dressCode } from "./code-blocks.js";
import { parseBlocks, renderBlocks } from "./markdown.js";
import { typeset } from "./math.js";
import { markSeams, showSeams } from "./seams.js";

export class AnswerText {
  #root;
  #source = "";
  #frozenEnd = 0;
  #openNodes = [];
  #openFence = null;
  #passages = new Map();
  #citations = null;

  #question;

  /** `question`: the text that is answered. */
  constructor(root, question) {
    this.#root = root;
    this.#question = question;
  }

  /**
   * Shows `text` (with `seams`: offsets where continuations begin), `passages` to cite, and the
   * server's `citations`, null while the text grows.
   */
  show(text, seams, passages, citations) {
    const marked = markCitations(text, seams, citations);
    const source = markSeams(marked.text, marked.seams);
    const numbers = [...passages.keys()].join();
    const isGrowth = source.startsWith(this.#source) && numbers === [...this.#passages.keys()].join();
    this.#passages = passages;
    this.#citations = citations;
    if (isGrowth && source.length === this.#source.length) return;
    if (!isGrowth) this.#clear();
    this.#source = source;
    this.#render();
  }

  /** The answer has ended: a fence that never closed is highlighted as it is. */
  end() {
    if (this.#openFence !== null) closeCode(this.#openFence);
    this.#openFence = null;
  }

  #clear() {
    this.#root.replaceChildren();
    this.#frozenEnd = 0;
    this.#openNodes = [];
    this.#openFence = null;
  }

  #render() {
    const blocks = parseBlocks(this.#source.slice(this.#frozenEnd));
    if (blocks.length === 0) return;
    const last = blocks.at(-1);
    if (blocks.length === 1 && last.isOpenFence && this.#openFence !== null) {
      const code = this.#openFence.querySelector("code");
      code.textContent = last.tokens[0].content;
      showSeams(code);
      return;
    }
    // A block is finished when the next one has a whole line: until then that line could still
    // turn out to belong to it ("2" after "1. one" may become "2. two").
    const numOpen = blocks.length === 1 || last.firstLineEnds ? 1 : 2;
    const finished = blocks.slice(0, -numOpen);
    const open = blocks.slice(-numOpen);
    for (const node of this.#openNodes) node.remove();
    if (finished.length > 0) {
      this.#root.append(this.#dress(renderBlocks(finished)));
      this.#frozenEnd += open[0].start;
    }
    const fragment = this.#dress(renderBlocks(open));
    this.#openNodes = [...fragment.childNodes];
    this.#openFence = last.isOpenFence ? (fragment.lastElementChild ?? null) : null;
    this.#root.append(fragment);
  }

  #dress(fragment) {
    chipCitations(fragment, { passages: this.#passages, citations: this.#citations, question: this.#question });
    showSeams(fragment);
    dressCode(fragment);
    typeset(fragment);
    return fragment;
  }
}
