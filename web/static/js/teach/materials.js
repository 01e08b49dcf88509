// Materials: dropped in, watched, listed, edited.

import { request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { number, plural, t } from "../i18n.js";
import { materialRow } from "./material-row.js";
import { Uploads } from "./uploads.js";

const FORMATS = ".md,.markdown,.txt,.text,.html,.htm,.csv,.tsv,.pdf,.docx,.pptx,.zip";
const POLL_MS = 1500;

export class Materials {
  #root;
  #page;
  #uploads;
  #materials = null;
  #timer = null;
  #isOpen = true;
  #queue = element("ul", { class: "uploads" });
  #list = element("div", { class: "materials" });

  constructor(root, page) {
    this.#root = root;
    this.#page = page;
    this.#uploads = new Uploads(page.course.id);
    this.#uploads.addEventListener("change", () => this.#renderQueue());
    this.#uploads.addEventListener("stored", () => this.#reload());
  }

  async open() {
    this.refresh();
    await this.#reload();
  }

  close() {
    this.#isOpen = false;
    clearTimeout(this.#timer);
  }

  refresh() {
    fill(this.#root, this.#dropArea(), this.#queue, this.#list);
    this.#renderQueue();
    this.#render();
  }

  async #reload() {
    clearTimeout(this.#timer);
    await this.#page.attempt(async () => {
      const path = `/api/courses/${encodeURIComponent(this.#page.course.id)}/materials`;
      this.#materials = (await request("GET", path)).materials;
    });
    if (!this.#isOpen || this.#materials === null) return;
    this.#page.course = { ...this.#page.course, num_materials: this.#materials.length };
    this.#render();
    const isMoving = this.#materials.some(({ state }) => state === "waiting" || state === "parsing");
    if (isMoving && !this.#uploads.isBusy) this.#timer = setTimeout(() => this.#reload(), POLL_MS);
  }

  #dropArea() {
    const chooser = element("input", { type: "file", class: "visually-hidden", id: "files", multiple: true, accept: FORMATS });
    chooser.addEventListener("change", () => {
      this.#uploads.add(chooser.files);
      chooser.value = "";
    });
    const area = element(
      "div",
      { class: "drop" },
      icon("book"),
      element("p", { class: "drop-title" }, t("upload.drop")),
      chooser,
      element("label", { class: "button button-main", for: "files" }, t("upload.choose")),
      element("p", { class: "field-hint" }, t("upload.formats")),
    );
    area.addEventListener("dragover", (event) => {
      event.preventDefault();
      area.classList.add("is-over");
    });
    area.addEventListener("dragleave", () => area.classList.remove("is-over"));
    area.addEventListener("drop", (event) => {
      event.preventDefault();
      area.classList.remove("is-over");
      this.#uploads.add(event.dataTransfer.files);
    });
    return area;
  }

  #renderQueue() {
    const { items, isBusy } = this.#uploads;
    const clear = element("button", { class: "quiet", type: "button", onclick: () => this.#uploads.clear() }, t("upload.clear"));
    fill(this.#queue, items.map(queueRow), items.length > 0 && !isBusy ? element("li", { class: "upload-clear" }, clear) : null);
    const last = items.at(-1);
    if (last) this.#page.say(`${last.name}: ${stateText(last)}`);
  }

  #render() {
    if (this.#materials === null) return;
    if (this.#materials.length === 0) {
      fill(this.#list, element("p", { class: "empty" }, t("materials.none")));
      return;
    }
    const hidden = this.#materials.filter((material) => material.state === "ready" && !material.is_visible).length;
    const facts = [plural("course.materials", this.#materials.length), hidden > 0 && t("materials.hiddenCount", { count: number(hidden) })];
    const editing = document.activeElement?.closest(".material")?.dataset.id;
    const old = new Map([...this.#list.querySelectorAll(".material")].map((node) => [node.dataset.id, node]));
    fill(
      this.#list,
      element("h2", { class: "section-title" }, facts.filter(Boolean).join(" · ")),
      element(
        "ul",
        { class: "material-list" },
        // A row that somebody writes in stays as it is.
        this.#materials.map((material) =>
          material.id === editing && old.has(material.id)
            ? old.get(material.id)
            : materialRow(material, this.#page, { changed: (now) => this.#changed(now), reload: () => this.#reload() }),
        ),
      ),
    );
  }

  #changed(material) {
    this.#materials = this.#materials.map((known) => (known.id === material.id ? { ...known, ...material } : known));
  }
}

function queueRow(item) {
  const tone = { failed: "red", ready: "done", duplicate: "amber" }[item.state] ?? "quiet";
  const part = item.state === "parsing" && item.pages ? item.page / item.pages : null;
  const bar = part === null ? null : element("progress", { class: "upload-bar", max: 1, value: part });
  return element(
    "li",
    { class: `upload upload-${tone}`, data: { state: item.state } },
    icon(tone === "red" ? "alert" : tone === "done" ? "check" : "info"),
    element("span", { class: "upload-name", dir: "auto" }, item.name),
    element("span", { class: "upload-state" }, stateText(item)),
    bar,
  );
}

function stateText({ state, page, pages, error }) {
  if (state === "failed" && error) return error.words;
  if (state === "parsing" && pages) return t("upload.page", { page: number(page ?? 0), pages: number(pages) });
  return t(`state.${state}`);
}
