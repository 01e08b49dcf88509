// What is shown of a material: a part around a passage, which grows at both ends on request. The
// server cuts between lines or blocks, and says where in the whole each part stands. Offsets are in
// characters (code points).

import { api } from "../api.js";

const PART_CHARS = 24_000;

export class MaterialText {
  #id;
  #start;
  #end;

  /** The part of `passage.material` around the passage. Raises ApiError. */
  static async around(passage) {
    return new MaterialText(passage.material, await api.material(passage.material, { around: passage.id, chars: PART_CHARS }));
  }

  constructor(id, part) {
    this.#id = id;
    this.title = part.title;
    this.format = part.format;
    this.hasOriginal = part.has_original === true;
    const { text, offset } = part;
    this.total = part.total;
    this.text = text;
    /** Where in `text` the passage stands, or null. */
    this.range = part.range && part.range.map((at) => at - offset);
    this.#start = offset;
    this.#end = offset + length(text);
  }

  get hasEarlier() {
    return this.#start > 0;
  }

  get hasLater() {
    return this.#end < this.total;
  }

  /** The text before what was read so far. Raises ApiError. */
  async earlier() {
    const from = Math.max(0, this.#start - PART_CHARS);
    const part = await this.#read(from, this.#start - from);
    // A part ends between blocks, which may be behind the place that was asked for.
    const text = Array.from(part.text).slice(0, this.#start - part.offset).join("");
    this.#start = part.offset;
    return text;
  }

  /** The text behind what was read so far. Raises ApiError. */
  async later() {
    const part = await this.#read(this.#end, PART_CHARS);
    const text = Array.from(part.text).slice(this.#end - part.offset).join("");
    this.#end = part.offset + length(part.text);
    return text;
  }

  async #read(offset, chars) {
    return api.material(this.#id, { offset, chars: Math.max(LEAST_CHARS, chars) });
  }
}

/** The least that the server gives. */
const LEAST_CHARS = 1000;

function length(text) {
  let count = 0;
  for (const _ of text) count += 1;
  return count;
}
