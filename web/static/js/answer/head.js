// The head of an answer that has no text yet: what is being done, how far it is, and what follows.

import { element, fill } from "../elements.js";
import { percent, t } from "../i18n.js";
import { describePhase } from "./finish.js";
import { meter } from "./meter.js";
import { elapsed } from "./spans.js";

const STEPS = ["send", "search", "queue", "read", "write"];
const STEP_OF = { sending: "send", searching: "search", queued: "queue", reading: "read" };
/** Who waits for longer wants to know for how long. */
const TIME_FROM_MS = 3000;
/** A wait that is over sooner needs no explanation. */
const MORE_FROM_MS = 1000;

export class Head {
  #answer;
  #text = element("span", { class: "phase-text" });
  #fill = element("span", {});
  #bar = element("span", { class: "phase-bar", role: "progressbar", "aria-valuemin": 0, "aria-valuemax": 100 }, this.#fill);
  #percent = element("span", { class: "phase-percent", "aria-hidden": "true" });
  #time = element("span", { class: "phase-time", "aria-hidden": "true" });
  #steps = element("ol", { class: "steps" });
  #meter = element("div", { class: "waiting-meter" });
  #more = element("div", { class: "waiting-more", hidden: true }, this.#steps, this.#meter);
  #shownStep = null;
  #shownContext = null;
  root = element(
    "div",
    { class: "waiting-head" },
    element(
      "p",
      { class: "phase" },
      element("span", { class: "pulse", "aria-hidden": "true" }),
      this.#text,
      this.#bar,
      this.#percent,
      this.#time,
    ),
    this.#more,
  );

  constructor(answer) {
    this.#answer = answer;
  }

  /** `waitedMs`: since the answer was asked for; `words`: in place of the phase's own. */
  update(waitedMs, words) {
    const answer = this.#answer;
    write(this.#text, words ?? describePhase(answer));
    this.#showProgress(answer.phase === "reading" ? answer.progress : null);
    write(this.#time, waitedMs >= TIME_FROM_MS ? elapsed(waitedMs) : "");
    this.#more.hidden = waitedMs < MORE_FROM_MS;
    this.#showSteps(STEP_OF[answer.phase] ?? "write");
    if (this.#shownContext !== answer.context) {
      this.#shownContext = answer.context;
      fill(this.#meter, meter(answer.context));
    }
  }

  /** The language has changed: everything is to be written anew. */
  forget() {
    this.#shownStep = null;
    this.#shownContext = null;
  }

  #showProgress(progress) {
    const isKnown = progress !== null && progress < 1;
    this.#bar.hidden = !isKnown;
    write(this.#percent, isKnown ? percent(progress) : "");
    if (!isKnown) return;
    const whole = Math.round(progress * 100);
    this.#fill.style.width = `${whole}%`;
    this.#bar.setAttribute("aria-label", this.#text.textContent);
    this.#bar.setAttribute("aria-valuenow", String(whole));
    this.#bar.setAttribute("aria-valuetext", percent(progress));
  }

  #showSteps(current) {
    if (current === this.#shownStep) return;
    this.#shownStep = current;
    const { isContinued, isSummary } = this.#answer;
    const steps = STEPS.filter((step) => step !== "search" || !(isContinued || isSummary));
    const at = steps.indexOf(current);
    const state = (index) => (index < at ? "done" : index === at ? "now" : "next");
    fill(
      this.#steps,
      steps.map((step, index) =>
        element("li", { "aria-current": index === at ? "step" : null, data: { state: state(index) } }, t(`step.${step}`)),
      ),
    );
  }
}

function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
