// Materials: dropped in, watched, listed, edited.

import { request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { focusOn } from "../focus.js";
import { number, plural, t } from "../i18n.js";
import { MaterialRow } from "./material-row.js";
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
  /** How many readings of the list have begun, and which of them is shown. */
  #begun = 0;
  #read = 0;
  /** How often a material was changed here. */
  #changes = 0;
  /** A MaterialRow for each material, by its id. */
  #rows = new Map();
  #queue = element("ul", { class: "uploads" });
  #title = element("h2", { class: "section-title" });
  #rowList = element("ul", { class: "material-list" });
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
    for (const row of this.#rows.values()) row.refresh();
    this.#render();
  }

  async #reload() {
    if (!this.#isOpen) return;
    clearTimeout(this.#timer);
    const changes = this.#changes;
    const reading = (this.#begun += 1);
    const path = `/api/courses/${encodeURIComponent(this.#page.course.id)}/materials`;
    const found = await this.#page.read(() => request("GET", path), () => this.#isOpen);
    if (!this.#isOpen || reading < this.#read) return;
    if (changes !== this.#changes) {
      // It may not hold yet what was changed meanwhile.
      await this.#reload();
      return;
    }
    this.#read = reading;
    if (found !== undefined) this.#materials = found.materials;
    if (this.#materials === null) return;
    clearTimeout(this.#timer);
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
    const known = new Set(this.#materials.map(({ id }) => id));
    for (const id of this.#rows.keys()) if (!known.has(id)) this.#rows.delete(id);
    const focused = [...this.#rowList.children].findIndex((row) => row.contains(document.activeElement));
    arrange(this.#rowList, this.#materials.map((material) => this.#row(material)));
    if (this.#materials.length === 0) fill(this.#list, element("p", { class: "empty" }, t("materials.none")));
    else {
      this.#renderTitle();
      if (this.#rowList.parentNode !== this.#list) fill(this.#list, this.#title, this.#rowList);
    }
    const isLost = focused >= 0 && !this.#list.contains(document.activeElement);
    // The material has gone: its neighbour is next.
    if (isLost) focusOn(this.#rowList.children[Math.min(focused, this.#materials.length - 1)] ?? this.#root.querySelector("#files"));
  }

  #renderTitle() {
    const hidden = this.#materials.filter((material) => material.state === "ready" && !material.is_visible).length;
    const facts = [plural("course.materials", this.#materials.length), hidden > 0 && t("materials.hiddenCount", { count: number(hidden) })];
    this.#title.textContent = facts.filter(Boolean).join(" · ");
  }

  #row(material) {
    const known = this.#rows.get(material.id);
    const row = known ?? new MaterialRow(material, this.#page, { changed: (now) => this.#changed(now), reload: () => this.#reload() });
    if (known) row.update(material);
    else this.#rows.set(material.id, row);
    return row.root;
  }

  #changed(material) {
    this.#changes += 1;
    this.#materials = this.#materials.map((known) => (known.id === material.id ? { ...known, ...material } : known));
    this.#renderTitle();
  }
}

/** Makes `nodes` what is in `parent`. What has the focus is not moved, for it would lose it. */
function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  const isSo = parent.children.length === nodes.length && nodes.every((node, index) => parent.children[index] === node);
  if (isSo) return;
  const fixed = nodes.findIndex((node) => node.contains(document.activeElement));
  if (fixed < 0) {
    fill(parent, nodes);
    return;
  }
  nodes[fixed].before(...nodes.slice(0, fixed));
  nodes[fixed].after(...nodes.slice(fixed + 1));
}

function queueRow(item) {
  const tone = { failed: "red", ready: "done", duplicate: "amber", unfollowed: "amber" }[item.state] ?? "quiet";
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
