// Pieces of a text (blocks.js) as elements of the page. A list of them takes over another list: what
// is the same keeps its nodes, what has grown grows, and only the rest is made again.

import { element } from "../elements.js";
import { CodeBlock } from "./code-blocks.js";
import { rowFragment, sanitizedFragment } from "./markdown.js";
import { formulaNode, typeset } from "./math.js";
import { SEAM, seamLine, showSeams, withNamedControls, withoutControls } from "./seams.js";

/** What in a text may become an element: the names of sources and the marks of private characters. */
const SPECIAL = /[[【\uE000-\uF8FF]/;

/** The pieces below one element, in order. */
export class Pieces {
  #parent;
  #dress;
  #shown = [];

  /** `dress(fragment)` puts the chips of citations into what has been made; in code it takes their
   * marks away. */
  constructor(parent, dress) {
    this.#parent = parent;
    this.#dress = dress;
  }

  get length() {
    return this.#shown.length;
  }

  /** Whether the piece number `index` looks as `piece` says. */
  isShown(index, piece) {
    return index < this.#shown.length && isSame(this.#shown[index].piece, piece);
  }

  /** Where the piece number `index` stands in the window: {top, bottom}. */
  place(index) {
    const elements = this.#shown[index].nodes.filter((node) => node instanceof Element);
    if (elements.length === 0) return { top: 0, bottom: 0 };
    // Of elements, not of a range: that would lay out what is in them, however far from the window.
    return { top: elements[0].getBoundingClientRect().top, bottom: elements.at(-1).getBoundingClientRect().bottom };
  }

  /**
   * Makes the pieces from number `from` on those of `pieces`, as far as `deadline` allows. Returns
   * how many of all are as they should be; fewer than there are means that time was over.
   */
  update(pieces, deadline, from = 0) {
    for (const [index, piece] of pieces.entries()) {
      if (!this.updateOne(from + index, piece, deadline)) return from + index;
    }
    const end = from + pieces.length;
    for (const { nodes } of this.#shown.splice(end)) removeAll(nodes);
    return end;
  }

  /** The same for one piece; false if time was over. */
  updateOne(index, piece, deadline) {
    let shown = this.#shown[index];
    if (shown === undefined || !shown.become(piece)) {
      if (!deadline.take()) return false;
      const made = new Shown(piece, this.#dress);
      const behind = this.#nodeBehind(index);
      for (const node of made.nodes) this.#parent.insertBefore(node, behind);
      if (shown !== undefined) removeAll(shown.nodes);
      this.#shown[index] = made;
      shown = made;
    }
    return shown.updateChildren(deadline);
  }

  clear() {
    this.update([], null);
  }

  /** The first node of a later piece, null at the end. */
  #nodeBehind(index) {
    for (let next = index + 1; next < this.#shown.length; next += 1) {
      const [node] = this.#shown[next].nodes;
      if (node?.parentNode === this.#parent) return node;
    }
    return null;
  }
}

/** One piece and its nodes. */
class Shown {
  #block = null;
  #children = null;

  constructor(piece, dress) {
    this.piece = piece;
    this.dress = dress;
    this.nodes = MAKERS[piece.kind](piece, this);
  }

  /** An element is filled afterwards, as far as there is time. */
  holdChildren(node) {
    this.#children = new Pieces(node, this.dress);
  }

  holdBlock(block) {
    this.#block = block;
  }

  /** Takes over what the piece has become; false if new nodes are needed. */
  become(piece) {
    const { piece: old, nodes } = this;
    if (piece.kind !== old.kind) return false;
    if (piece.kind === "element") {
      if (piece.tag !== old.tag || piece.attributes.class !== old.attributes.class) return false;
      if (piece.attributes.start !== old.attributes.start) nodes[0].setAttribute("start", piece.attributes.start ?? "1");
    } else if (piece.kind === "code") {
      if (!this.#block.become(piece)) return false;
    } else if (piece.kind === "text") {
      if (!grow(nodes, old.text, piece.text)) return false;
    } else if (!isSame(old, piece)) return false;
    this.piece = piece;
    return true;
  }

  updateChildren(deadline) {
    if (this.#children === null) return true;
    const { children } = this.piece;
    return this.#children.update(children, deadline) === children.length;
  }
}

const MAKERS = {
  element({ tag, attributes }, shown) {
    const node = element(tag, attributes);
    shown.holdChildren(node);
    return [node];
  },
  text({ text }, { dress }) {
    const fragment = new DocumentFragment();
    fragment.append(withoutControls(text));
    if (SPECIAL.test(text)) {
      dress(fragment);
      showSeams(fragment);
    }
    return [...fragment.childNodes];
  },
  inlineCode({ text }, { dress }) {
    const node = element("code", {}, withNamedControls(text));
    if (SPECIAL.test(text)) {
      dress(node);
      showSeams(node);
    }
    return [node];
  },
  code(piece, shown) {
    const block = new CodeBlock(piece);
    shown.holdBlock(block);
    return [block.root];
  },
  math(piece) {
    return [formulaNode(piece)];
  },
  html({ html, isRow }, { dress }) {
    const clean = withoutControls(html);
    const fragment = isRow ? rowFragment(clean) : sanitizedFragment(clean);
    dress(fragment);
    if (html.includes(SEAM)) showSeams(fragment);
    typeset(fragment);
    return [...fragment.childNodes];
  },
  seamLine() {
    return [seamLine()];
  },
};

/** Lets a text without elements grow at its end; false if it must be made again. */
function grow(nodes, old, text) {
  if (text === old) return true;
  const added = text.slice(old.length);
  if (!text.startsWith(old) || SPECIAL.test(added)) return false;
  const last = nodes.at(-1);
  // Only what follows the last bracket is sure to stay what it is.
  if (last?.nodeType !== Node.TEXT_NODE || last.parentNode === null || SPECIAL.test(last.data)) return false;
  last.appendData(withoutControls(added));
  return true;
}

function isSame(one, other) {
  if (one === undefined || one.kind !== other.kind) return false;
  return Object.entries(other).every(([key, value]) => {
    const own = one[key];
    if (key === "children") return own.length === value.length && value.every((child, index) => isSame(own[index], child));
    if (key === "attributes") return own.class === value.class && own.start === value.start;
    return own === value;
  });
}

function removeAll(nodes) {
  for (const node of nodes) node.remove();
}
