// What Enter means in a box where people write: it sends, but never while an input method composes.

/** `send()` is called for the Enter that sends; other keys are left to `onKey(event)`. */
export class EnterKey {
  #isComposing = false;
  #touch = window.matchMedia("(pointer: coarse) and (hover: none)");

  constructor(input, send, onKey = () => {}) {
    // One may have started before this script came.
    for (const type of ["compositionstart", "compositionupdate"]) input.addEventListener(type, () => (this.#isComposing = true));
    input.addEventListener("compositionend", () => (this.#isComposing = false));
    // Not every browser ends a composition whose box is left.
    input.addEventListener("blur", () => (this.#isComposing = false));
    input.addEventListener("keydown", (event) => {
      if (this.#composes(event)) return;
      if (!this.#sends(event)) {
        onKey(event);
        return;
      }
      event.preventDefault();
      send();
    });
  }

  /** On a phone's keyboard Enter is the only way to break a line. */
  get isTouch() {
    return this.#touch.matches;
  }

  /** Whether an input method composes in the box. */
  get isComposing() {
    return this.#isComposing;
  }

  #sends(event) {
    if (event.key !== "Enter" || event.shiftKey) return false;
    return !this.isTouch || event.ctrlKey || event.metaKey;
  }

  /** keyCode 229 is what Safari gives the Enter that ends a composition, after its end event. */
  #composes(event) {
    return this.#isComposing || event.isComposing || event.key === "Process" || event.keyCode === 229;
  }
}
