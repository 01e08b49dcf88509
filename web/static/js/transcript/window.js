// Which part of a long conversation is on the page: the newest turns, and earlier ones when a
// reader comes up to them.

import { slices } from "../answer/slices.js";
import { element } from "../elements.js";
import { plural } from "../i18n.js";

const NEWEST_MESSAGES = 60;
const MORE_MESSAGES = 40;
/** Behind the texts of what is on the page already. */
const PRIORITY = 2;
const REACH = "600px";

/**
 * Adds messages above what is shown, in slices that leave the page free between them. `root` is
 * the list, `area` what scrolls; `make(message)` gives a message's element. What a reader sees
 * stays where it is.
 */
export class TranscriptWindow {
  #root;
  #area;
  #make;
  #onGrown;
  #messages = [];
  /** Index of the first message on the page, and of the first that is wanted there. */
  #first = 0;
  #wanted = 0;
  #job = null;
  #observer;
  #earlier = element("button", { class: "quiet earlier", type: "button" });

  /** `onGrown()` is called after each slice. */
  constructor(root, area, make, onGrown) {
    this.#root = root;
    this.#area = area;
    this.#make = make;
    this.#onGrown = onGrown;
    this.#earlier.addEventListener("click", () => this.#more());
    this.#observer = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) this.#more();
      },
      { root: area, rootMargin: `${REACH} 0px 0px 0px` },
    );
    // On paper there is no way up.
    window.addEventListener("beforeprint", () => this.showAll());
  }

  /** Index of the first message that is on the page. */
  get first() {
    return this.#first;
  }

  /** Other messages: those from `first` on are on the page already, earlier ones come by and by. */
  begin(messages, first) {
    this.#messages = messages;
    this.#first = first;
    this.#wanted = Math.min(first, Math.max(0, messages.length - NEWEST_MESSAGES));
    this.#fill();
  }

  /** All of it, at once. */
  showAll() {
    this.reach(0);
  }

  /** The same in the language of now. */
  refresh() {
    this.#inPlace(() => this.#showButton());
  }

  /** Brings a message on the page, with all that follows it. */
  reach(index) {
    if (index >= this.#first) return;
    this.#wanted = Math.min(this.#wanted, index);
    this.#inPlace(() => {
      while (this.#first > index) this.#addOne();
      this.#showButton();
    });
  }

  #more() {
    this.#wanted = Math.max(0, Math.min(this.#wanted, this.#first) - MORE_MESSAGES);
    this.#fill();
  }

  #fill() {
    if (this.#first <= this.#wanted) {
      this.#inPlace(() => this.#showButton());
      return;
    }
    // It may be above what is read: it goes with the first messages that come in its place.
    this.#observer.disconnect();
    this.#job ??= slices.add((deadline) => this.#addSlice(deadline), { priority: PRIORITY });
  }

  #addSlice(deadline) {
    this.#inPlace(() => {
      while (this.#first > this.#wanted && deadline.take()) this.#addOne();
      if (this.#first <= this.#wanted) this.#showButton();
    });
    if (this.#first > this.#wanted) return true;
    this.#job = null;
    return false;
  }

  /** Changes what stands above; what a reader sees stays where it is. */
  #inPlace(change) {
    const anchor = this.#root.querySelector(":scope > article");
    const top = () => anchor?.getBoundingClientRect().top ?? 0;
    const place = top();
    // The browser keeps the place by itself, but not at the very top; both would be too much.
    this.#area.classList.add("is-growing-up");
    change();
    this.#area.scrollTop += top() - place;
    this.#area.classList.remove("is-growing-up");
    this.#onGrown();
  }

  #addOne() {
    this.#first -= 1;
    const node = this.#make(this.#messages[this.#first]);
    if (this.#earlier.parentNode === this.#root) this.#earlier.after(node);
    else this.#root.prepend(node);
  }

  #showButton() {
    const num = Math.ceil(this.#first / 2);
    this.#observer.disconnect();
    if (num === 0) {
      const hadFocus = this.#earlier === document.activeElement;
      this.#earlier.remove();
      if (hadFocus) this.#root.querySelector("article")?.focus({ preventScroll: true });
      return;
    }
    this.#earlier.textContent = plural("history.earlier", num);
    if (this.#root.firstChild !== this.#earlier) this.#root.prepend(this.#earlier);
    this.#observer.observe(this.#earlier);
  }
}
