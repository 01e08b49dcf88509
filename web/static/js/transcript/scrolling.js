// Keeps the newest text in view for a reader who is at the bottom, and leaves others alone.

/** A reader who comes so near to the bottom wants to stay there. */
const NEAR_PX = 64;

export class Scrolling {
  #area;
  #button;
  #isPinned = true;
  #lastTop = 0;
  /** How far the area could be scrolled: its text may shrink, and it may grow itself. */
  #lastRoom = 0;
  /** Where the reader was, while the page is laid out as paper, which nobody scrolls; else null. */
  #printedAt = null;

  constructor(area, button) {
    this.#area = area;
    this.#button = button;
    area.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    // Before the scrolling that it begins, which the next line of text would take back.
    area.addEventListener("wheel", ({ deltaY }) => deltaY < 0 && this.#leave(), { passive: true });
    button.addEventListener("click", () => this.toNewest());
    window.addEventListener("beforeprint", () => (this.#printedAt = area.scrollTop));
    window.addEventListener("afterprint", () => requestAnimationFrame(() => this.#printed()));
    // Told in the frame in which the height has changed, when the layout is known and nothing has
    // been painted yet.
    const sizes = new ResizeObserver(() => this.follow());
    sizes.observe(area);
    for (const part of area.children) sizes.observe(part);
  }

  /** The height has changed: stays at the bottom if the reader was there. A change of what stands in
   * the area is noticed without this call. */
  follow() {
    if (this.#isPinned) this.#area.scrollTop = this.#area.scrollHeight;
    this.#lastTop = this.#area.scrollTop;
    this.#lastRoom = this.#room;
    this.#showButton();
  }

  /** Goes to the bottom, and stays there while the text grows. */
  toNewest() {
    this.#isPinned = true;
    this.follow();
  }

  /** Goes to the top: what is shown is read from there. */
  toTop() {
    this.#isPinned = false;
    this.#area.scrollTop = 0;
    this.follow();
  }

  /** What comes now is not followed: its reader looks at what stands above it. */
  stay() {
    this.#leave();
  }

  #printed() {
    if (this.#printedAt === null) return;
    this.#area.scrollTop = this.#printedAt;
    this.#lastTop = this.#area.scrollTop;
    this.#printedAt = null;
    this.follow();
  }

  #scrolled() {
    if (this.#printedAt !== null) return;
    const top = this.#area.scrollTop;
    const hasShrunk = this.#room < this.#lastRoom;
    // Growth of the text moves nobody, and where it shrinks the browser does; the rest is the reader.
    if (top < this.#lastTop - 1 && !hasShrunk) this.#isPinned = false;
    else if (top > this.#lastTop + 1 && this.#distance() <= NEAR_PX) this.#isPinned = true;
    this.#lastTop = top;
    this.#lastRoom = this.#room;
    this.#showButton();
  }

  #leave() {
    if (this.#room <= 0) return;
    this.#isPinned = false;
    this.#showButton();
  }

  get #room() {
    return this.#area.scrollHeight - this.#area.clientHeight;
  }

  #distance() {
    return this.#room - this.#area.scrollTop;
  }

  #showButton() {
    this.#button.hidden = this.#isPinned || this.#distance() <= NEAR_PX;
  }
}
