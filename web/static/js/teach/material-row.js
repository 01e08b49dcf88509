// One material in the list: its fields are saved as they change.

import { ApiError, request } from "../api.js";
import { element, fill, icon } from "../elements.js";
import { errorWords, input, select } from "../forms.js";
import { language, number, plural, t } from "../i18n.js";
import { confirmed } from "./dialogs.js";
import { showPreview } from "./preview.js";
import { sizeText } from "./sizes.js";

const KINDS = ["lecture", "lab", "exam", "admin", "other"];

/** `changed(material)` is told what the server says after a change, `reload()` when it is more. */
export function materialRow(material, page, { changed, reload }) {
  const path = `/api/materials/${encodeURIComponent(material.id)}`;
  const note = element("span", { class: "row-note", role: "status" });
  const badge = element("span", {});
  const row = element("li", { class: "material", data: { id: material.id, state: material.state } });

  const showBadge = (now) => {
    const [name, tone] = stateOf(now);
    Object.assign(badge, { className: `badge badge-${tone}`, textContent: name });
  };

  const save = async (fields) => {
    fill(note, t("save.saving"));
    row.classList.remove("is-wrong");
    try {
      const now = await request("PATCH", path, fields);
      changed(now);
      showBadge(now);
      fill(note, icon("check"), t("save.saved"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      row.classList.add("is-wrong");
      fill(note, errorWords(error));
    }
  };

  const title = input("title", { value: material.title, "aria-label": t("material.title"), class: "input input-title" });
  title.addEventListener("change", () => save({ title: title.value.trim() }));
  const kind = select("kind", KINDS.map((name) => [name, t(`kind.${name}`)]), material.kind, { "aria-label": t("material.kind") });
  kind.addEventListener("change", () => save({ kind: kind.value }));
  const week = input("week", { type: "number", min: 1, max: 60, value: material.week, "aria-label": t("material.week"), placeholder: t("material.week") });
  week.addEventListener("change", () => save({ week: week.value === "" ? null : Number(week.value) }));

  const from = input("visible_from", { type: "date", value: material.visible_from?.slice(0, 10), "aria-label": t("material.visibleFrom") });
  const shown = select("visible", ["shown", "hidden", "from"].map((name) => [name, t(`visible.${name}`)]), visibility(material), { "aria-label": t("material.visible") });
  from.hidden = shown.value !== "from";
  shown.addEventListener("change", () => {
    from.hidden = shown.value !== "from";
    if (shown.value === "from") from.focus();
    else save({ is_hidden: shown.value === "hidden", visible_from: null });
  });
  from.addEventListener("change", () => {
    if (from.value) save({ is_hidden: false, visible_from: from.value });
  });

  const button = (label, action, style = "") => element("button", { class: `quiet ${style}`, type: "button", onclick: action }, label);
  const replace = element("input", { type: "file", class: "visually-hidden", tabindex: "-1", "aria-hidden": "true" });
  replace.addEventListener("change", () =>
    page.attempt(async () => {
      const body = new FormData();
      body.append("file", replace.files[0]);
      fill(note, t("state.sending"));
      await request("PUT", `${path}/file`, body).finally(() => fill(note));
      await reload();
    }),
  );
  const remove = async () => {
    if (!(await confirmed(t("material.deleteAsk", { title: material.title }), t("material.delete")))) return;
    await page.attempt(() => request("DELETE", path));
    await reload();
  };
  const retry = () =>
    page.attempt(async () => {
      fill(note, t("state.parsing"));
      await request("POST", `${path}/retry`).finally(reload);
    });
  const isFailed = material.state === "failed";

  showBadge(material);
  return fill(
    row,
    element("div", { class: "material-head" }, title, badge),
    element("p", { class: "material-facts", dir: "auto" }, facts(material)),
    isFailed && material.error ? element("p", { class: "material-error" }, reason(material.error)) : null,
    material.warnings?.map((warning) => element("p", { class: "material-warning" }, reason(warning))),
    element(
      "div",
      { class: "material-line" },
      isFailed ? null : element("div", { class: "material-fields" }, kind, week, shown, from),
      element(
        "div",
        { class: "material-actions" },
        note,
        isFailed ? button(t("material.retry"), retry) : button(t("material.preview"), () => showPreview(material, page, reload)),
        material.size_bytes ? element("a", { class: "quiet", href: `${path}/original`, download: true }, t("material.download")) : null,
        button(t("material.replace"), () => replace.click()),
        replace,
        button(t("material.delete"), remove, "quiet-danger"),
      ),
    ),
  );
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

/** A sentence that comes in both languages. */
export function reason({ message, message_zh: chinese }) {
  return (language() === "zh" && chinese) || message;
}
