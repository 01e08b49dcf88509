// One material in the list: its fields are saved as they change.

import { ApiError, request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { errorWords, input, keepingFields, select } from "../forms.js";
import { language, number, plural, t } from "../i18n.js";
import { dayIn, zoneOf } from "./dates.js";
import { confirmed } from "./dialogs.js";
import { showPreview } from "./preview.js";
import { sizeText } from "./sizes.js";

const KINDS = ["lecture", "lab", "exam", "admin", "other"];

/**
 * A row lives as long as its material is listed: what is read again goes into it, and what somebody
 * writes in it stays. `changed(material)` is told what the server says after a change, `reload()`
 * when it is more.
 */
export class MaterialRow {
  #material;
  #page;
  #changed;
  #reload;
  #path;
  /** What the server has of each field, by name: a field that holds something else is being edited. */
  #stored;
  #fields;
  #parts;
  /** Words beside the buttons, made anew in another language. */
  #noteWords = () => null;
  root = element("li", { class: "material" });

  constructor(material, page, { changed, reload }) {
    this.#material = material;
    this.#page = page;
    this.#changed = changed;
    this.#reload = reload;
    this.#path = `/api/materials/${encodeURIComponent(material.id)}`;
    this.#stored = this.#valuesOf(material);
    this.root.dataset.id = material.id;
    this.#build();
    // As the fields hold it: one of a line drops the ends of lines.
    for (const [name, { value }] of Object.entries(this.#fields)) this.#stored[name] = value;
  }

  /** The language has changed. */
  refresh() {
    keepingFields(this.root, () => this.#build());
    this.#showDate();
  }

  /** Shows what the server says of the material now. */
  update(material) {
    this.#material = material;
    this.#showFacts();
    for (const [name, value] of Object.entries(this.#valuesOf(material))) this.#showValue(name, value);
    this.#showDate();
  }

  #valuesOf(material) {
    const { title, kind, week, visible_from: from } = material;
    return {
      title,
      kind,
      week: String(week ?? ""),
      visible: visibility(material),
      visible_from: from ? dayIn(from, zoneOf(this.#page.course)) : "",
    };
  }

  #showValue(name, value) {
    const field = this.#fields[name];
    const isEdited = field.value !== this.#stored[name];
    if (!isEdited && field.value !== value) field.value = value;
    this.#stored[name] = isEdited ? value : field.value;
  }

  #showDate() {
    const { visible, visible_from: from } = this.#fields;
    from.hidden = visible.value !== "from";
  }

  #showFacts() {
    const material = this.#material;
    const { badge, facts: line, fields, look, original } = this.#parts;
    const [name, tone] = stateOf(material);
    const isFailed = material.state === "failed";
    this.root.dataset.state = material.state;
    Object.assign(badge, { className: `badge badge-${tone}`, textContent: name });
    line.textContent = facts(material);
    for (const node of this.#parts.reasons) node.remove();
    this.#parts.reasons = reasons(material);
    line.after(...this.#parts.reasons);
    fields.hidden = isFailed;
    look.textContent = t(isFailed ? "material.retry" : "material.preview");
    original.hidden = !material.size_bytes;
  }

  #say(words) {
    this.#noteWords = words;
    fill(this.#parts.note, words());
  }

  /** Stores `changes`, which come from the fields called `names`. */
  async #save(changes, ...names) {
    const sent = names.map((name) => [name, this.#fields[name].value]);
    this.#say(() => t("save.saving"));
    this.root.classList.remove("is-wrong");
    try {
      const now = await request("PATCH", this.#path, changes);
      this.#changed(now);
      this.#material = { ...this.#material, ...now };
      this.#showFacts();
      // What was written since has not been stored. Another field may be on its way.
      Object.assign(this.#stored, Object.fromEntries(sent));
      const values = this.#valuesOf(this.#material);
      for (const name of names) this.#showValue(name, values[name]);
      this.#showDate();
      this.#say(() => [icon("check"), t("save.saved")]);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.root.classList.add("is-wrong");
      this.#say(() => errorWords(error));
    }
  }

  #build() {
    const note = element("span", { class: "row-note", role: "status" });
    const badge = element("span", {});
    const line = element("p", { class: "material-facts", dir: "auto" });
    const { title, kind, week, visible, visible_from: from } = (this.#fields = this.#makeFields());
    const fields = element("div", { class: "material-fields" }, kind, week, visible, from);
    const button = (label, action, style = "") => element("button", { class: `quiet ${style}`, type: "button", onclick: action }, label);
    const look = button("", () => this.#look());
    const original = element("a", { class: "quiet", href: `${this.#path}/original`, download: true }, t("material.download"));
    const file = element("input", { type: "file", class: "visually-hidden", tabindex: "-1", "aria-hidden": "true" });
    file.addEventListener("change", () => this.#replace(file));
    this.#parts = { note, badge, facts: line, reasons: [], fields, look, original };
    fill(
      this.root,
      element("div", { class: "material-head" }, title, badge),
      line,
      element(
        "div",
        { class: "material-line" },
        fields,
        element(
          "div",
          { class: "material-actions" },
          note,
          look,
          original,
          button(t("material.replace"), () => file.click()),
          file,
          button(t("material.delete"), () => this.#remove(), "quiet-danger"),
        ),
      ),
    );
    this.#showFacts();
    this.#showDate();
    this.#say(this.#noteWords);
  }

  #makeFields() {
    const stored = this.#stored;
    const title = input("title", { value: stored.title, "aria-label": t("material.title"), class: "input input-title" });
    title.addEventListener("change", () => this.#save({ title: title.value.trim() }, "title"));
    const kind = select("kind", KINDS.map((name) => [name, t(`kind.${name}`)]), stored.kind, { "aria-label": t("material.kind") });
    kind.addEventListener("change", () => this.#save({ kind: kind.value }, "kind"));
    const week = input("week", { type: "number", min: 1, max: 60, value: stored.week, "aria-label": t("material.week"), placeholder: t("material.week") });
    week.addEventListener("change", () => this.#save({ week: week.value === "" ? null : Number(week.value) }, "week"));
    const from = input("visible_from", { type: "date", value: stored.visible_from, "aria-label": t("material.visibleFrom") });
    from.addEventListener("change", () => {
      if (from.value) this.#save({ is_hidden: false, visible_from: from.value }, "visible", "visible_from");
    });
    const visible = select("visible", ["shown", "hidden", "from"].map((name) => [name, t(`visible.${name}`)]), stored.visible, { "aria-label": t("material.visible") });
    visible.addEventListener("change", () => {
      this.#showDate();
      if (visible.value === "from") from.focus();
      else this.#save({ is_hidden: visible.value === "hidden", visible_from: null }, "visible", "visible_from");
    });
    return { title, kind, week, visible, visible_from: from };
  }

  async #look() {
    if (this.#material.state !== "failed") {
      await showPreview(this.#material, this.#page, this.#reload);
      return;
    }
    await this.#page.attempt(() => this.#send("state.parsing", "POST", `${this.#path}/retry`));
    await this.#reload();
  }

  async #replace(file) {
    const body = new FormData();
    body.append("file", file.files[0]);
    // So that the same file can be chosen once more.
    file.value = "";
    await this.#page.attempt(() => this.#send("state.sending", "PUT", `${this.#path}/file`, body));
    await this.#reload();
  }

  /** Sends a request and says so as long as it takes. */
  async #send(key, ...sent) {
    this.#say(() => t(key));
    await request(...sent).finally(() => this.#say(() => null));
  }

  async #remove() {
    if (!(await confirmed(t("material.deleteAsk", { title: this.#material.title }), t("material.delete")))) return;
    await this.#page.attempt(() => request("DELETE", this.#path));
    await this.#reload();
  }
}

function visibility({ is_hidden: isHidden, visible_from: from }) {
  if (isHidden) return "hidden";
  return from ? "from" : "shown";
}

function stateOf(material) {
  if (material.state === "failed") return [t("state.failed"), "red"];
  if (material.state !== "ready") return [t(`state.${material.state}`), "quiet"];
  return material.is_visible ? [t("visible.shown"), "done"] : [t("visible.hidden"), "amber"];
}

function facts({ name, format, num_pages: pages, num_passages: passages, size_bytes: bytes, progress }) {
  return [
    name,
    t(`format.${format}`),
    pages && plural("material.pages", pages),
    passages > 0 && plural("material.passages", passages),
    bytes && sizeText(bytes),
    progress && t("upload.page", { page: number(progress.done), pages: number(progress.total) }),
  ]
    .filter(Boolean)
    .join(" · ");
}

function reasons({ state, error, warnings }) {
  return [
    ...(state === "failed" && error ? [element("p", { class: "material-error" }, reason(error))] : []),
    ...(warnings ?? []).map((warning) => element("p", { class: "material-warning" }, reason(warning))),
  ];
}

/** A sentence that comes in both languages. */
export function reason({ message, message_zh: chinese }) {
  return (language() === "zh" && chinese) || message;
}
