// What a citation rests on, in a small box beside its chip: after a short rest of the pointer, on
// the keyboard's focus, and on the first tap. It can be hovered, stays until it is left, and Escape
// closes it alone.

import { element, fill, icon } from "../elements.js";
import { t } from "../i18n.js";
import { excerpt, locatorText, withMarks } from "./places.js";

const REST_MS = 300;
/** Time to move the pointer from the chip into the box. */
const LEAVE_MS = 250;
const GAP_PX = 6;
const EXCERPT_CHARS = 320;
const ID = "passage-preview";

export class PassagePreview {
  #open;
  #box;
  #chip = null;
  #passage = null;
  #timer = null;
  #pointer = "mouse";
  #isPressed = false;
  #frame = null;

  /** `host` gets the box; `open(passage, chip)` shows the material. */
  constructor(host, open) {
    this.#open = open;
    this.#box = element("div", { class: "preview", id: ID, popover: "manual" });
    this.#box.addEventListener("pointerenter", () => clearTimeout(this.#timer));
    this.#box.addEventListener("pointerleave", () => this.#hideSoon());
    host.append(this.#box);
    // Capturing: what is innermost closes first, before the panel or a running answer hears of it.
    document.addEventListener("keydown", (event) => this.#key(event), true);
    document.addEventListener("pointerdown", (event) => this.#pressed(event), true);
    document.addEventListener("scroll", () => this.#follow(), { capture: true, passive: true });
    window.addEventListener("resize", () => this.hide());
  }

  /** Shows previews for the chips below `root`; `find(chip)` gives a chip's passage, with its
   * marks, or undefined. */
  watch(root, find) {
    const over = (event, action) => {
      const chip = event.target.closest?.(".cite");
      const passage = chip ? find(chip) : undefined;
      if (passage !== undefined) action(chip, passage);
    };
    root.addEventListener("pointerover", (event) => over(event, (chip, passage) => this.#hovered(event, chip, passage)));
    root.addEventListener("pointerout", (event) => over(event, () => this.#hideSoon()));
    root.addEventListener("focusin", (event) => over(event, (chip, passage) => this.#focused(event, chip, passage)));
    root.addEventListener("focusout", (event) => over(event, (chip) => this.#blurred(chip)));
    root.addEventListener("click", (event) => over(event, (chip, passage) => this.#clicked(event, chip, passage)), true);
  }

  get isOpen() {
    return this.#chip !== null;
  }

  show(chip, passage) {
    clearTimeout(this.#timer);
    if (this.#chip === chip) return;
    this.hide();
    this.#chip = chip;
    this.#passage = passage;
    this.#fill();
    chip.setAttribute("aria-describedby", ID);
    this.#box.showPopover();
    this.#place();
  }

  hide() {
    clearTimeout(this.#timer);
    if (this.#chip === null) return;
    this.#chip.removeAttribute("aria-describedby");
    this.#chip = null;
    this.#box.hidePopover();
  }

  #fill() {
    const passage = this.#passage;
    const { text, marks, isBegun, isEnded } = excerpt(passage.text ?? "", passage.marks ?? [], EXCERPT_CHARS);
    // Reached by the pointer alone: with the keyboard, Enter on the chip does the same.
    const button = element("button", { class: "link-button", type: "button", tabindex: "-1" }, icon("book"), t("source.open"));
    button.addEventListener("click", () => this.#openMaterial());
    fill(
      this.#box,
      element("p", { class: "preview-title", dir: "auto" }, passage.title),
      element("p", { class: "preview-locator", dir: "auto" }, locatorText(passage)),
      element(
        "p",
        { class: "preview-text", dir: "auto" },
        isBegun ? "… " : null,
        // Paragraphs need no empty lines in so small a box.
        withMarks(text, marks, (marked) => element("mark", {}, marked)).map((part) => part.replaceAll?.(/\n\s*\n/g, "\n") ?? part),
        isEnded ? " …" : null,
      ),
      button,
    );
  }

  #openMaterial() {
    const chip = this.#chip;
    this.hide();
    this.#open(this.#passage, chip);
  }

  #hovered(event, chip, passage) {
    if (event.pointerType === "touch") return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.show(chip, passage), this.isOpen ? 0 : REST_MS);
  }

  #hideSoon() {
    clearTimeout(this.#timer);
    if (this.#pointer === "touch") return;
    this.#timer = setTimeout(() => {
      if (!this.#chip?.matches(":focus-visible")) this.hide();
    }, LEAVE_MS);
  }

  #focused(event, chip, passage) {
    // A press of a pointer has its own rules, and the chip from which the panel was opened gets the
    // focus back without being asked about again.
    const isReturn = event.relatedTarget?.closest("dialog:not([open])");
    if (!isReturn && chip.matches(":focus-visible")) this.show(chip, passage);
  }

  #blurred(chip) {
    // A press inside the box takes the focus from the chip, and is no reason to go.
    if (this.#chip === chip && !this.#isPressed) this.hide();
  }

  #clicked(event, chip, passage) {
    if (this.#pointer === "touch" && this.#chip !== chip) {
      event.stopPropagation();
      this.show(chip, passage);
      return;
    }
    this.hide();
  }

  #key(event) {
    this.#isPressed = false;
    if (event.key !== "Escape" || !this.isOpen || event.isComposing) return;
    this.hide();
    // With Shift it leads on, to the question.
    if (event.shiftKey) return;
    event.preventDefault();
    event.stopPropagation();
  }

  #pressed(event) {
    this.#pointer = event.pointerType;
    this.#isPressed = this.#box.contains(event.target);
    if (event.pointerType !== "touch" || !this.isOpen) return;
    if (!this.#isPressed && event.target.closest?.(".cite") !== this.#chip) this.hide();
  }

  #follow() {
    if (this.isOpen) this.#frame ??= requestAnimationFrame(() => this.#place());
  }

  /** Below the chip, since what it supports stands before it, or above where there is more room, and
   * never over it. */
  #place() {
    this.#frame = null;
    if (this.#chip === null) return;
    const chip = this.#chip.getBoundingClientRect();
    if (!this.#chip.isConnected || chip.bottom < 0 || chip.top > innerHeight) {
      this.hide();
      return;
    }
    const { style } = this.#box;
    style.maxHeight = "";
    const { width, height } = this.#box.getBoundingClientRect();
    const above = chip.top - 2 * GAP_PX;
    const below = innerHeight - chip.bottom - 2 * GAP_PX;
    const isAbove = height > below && above > below;
    const shown = Math.min(height, isAbove ? above : below);
    if (shown < height) style.maxHeight = `${shown}px`;
    const left = Math.min(chip.left + chip.width / 2 - width / 2, innerWidth - width - GAP_PX);
    style.left = `${Math.max(GAP_PX, left)}px`;
    style.top = `${isAbove ? chip.top - GAP_PX - shown : chip.bottom + GAP_PX}px`;
  }
}
