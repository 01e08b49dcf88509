// Keeps the newest text in view for a reader who is at the bottom, and leaves others alone.

const NEAR_PX = 64;

export class Scrolling {
  #area;
  #button;
  #isPinned = true;
  #lastTop = 0;

  constructor(area, button) {
    this.#area = area;
    this.#button = button;
    area.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    button.addEventListener("click", () => this.toNewest());
    new ResizeObserver(() => this.follow()).observe(area);
  }

  /** The height has changed: stays at the bottom if the reader was there. */
  follow() {
    if (this.#isPinned) this.#area.scrollTop = this.#area.scrollHeight;
    this.#lastTop = this.#area.scrollTop;
    this.#showButton();
  }

  toNewest() {
    this.#isPinned = true;
    this.follow();
  }

  #scrolled() {
    const top = this.#area.scrollTop;
    // Only the reader moves up; growth of the text never does.
    if (top < this.#lastTop - 1 || this.#distance() <= NEAR_PX) this.#isPinned = this.#distance() <= NEAR_PX;
    this.#lastTop = top;
    this.#showButton();
  }

  #distance() {
    return this.#area.scrollHeight - this.#area.scrollTop - this.#area.clientHeight;
  }

  #showButton() {
    this.#button.hidden = this.#isPinned || this.#distance() <= NEAR_PX;
  }
}
