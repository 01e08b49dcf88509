// What the server has read of a file, with the encodings that fit it, and its passages.

import { request } from "../api.js";
import { element, fill } from "../elements.js";
import { isWaiting, setWaiting } from "../focus.js";
import { field, select } from "../forms.js";
import { plural, t } from "../i18n.js";
import { placeText } from "../sources/places.js";
import { dialog } from "./dialogs.js";
import { cleaned } from "../answer/seams.js";
import { reason } from "./material-row.js";

export async function showPreview(material, page, reload) {
  const path = `/api/materials/${encodeURIComponent(material.id)}`;
  const preview = await page.attempt(() => request("GET", `${path}/preview`));
  if (preview === undefined) return;
  const text = element("pre", { class: "preview-text", tabindex: "0", dir: "auto" });
  const choice = element("div", { class: "preview-choice" });
  const warnings = element("div", {});
  const problem = element("p", { class: "form-problem", role: "alert", hidden: true });
  const attempt = async (action) => {
    problem.hidden = true;
    await page.attempt(action, (error) => {
      // The page's own bar is behind the dialog.
      problem.hidden = false;
      fill(problem, error.words);
    });
  };

  const show = (shown) => {
    fill(text, cleaned(shown.text), shown.is_whole ? null : `\n${t("preview.cut")}`);
    fill(warnings, shown.warnings.map((warning) => element("p", { class: "material-warning" }, reason(warning))));
  };

  if (preview.candidates.length > 0) {
    const names = [...new Set([preview.encoding, ...preview.candidates.map(({ encoding }) => encoding)])].filter(Boolean);
    const encodings = select("encoding", names.map((name) => [name, name]), preview.encoding);
    const use = element("button", { class: "button", type: "button", hidden: true }, t("preview.use"));
    encodings.addEventListener("change", () =>
      attempt(async () => {
        use.hidden = encodings.value === preview.encoding;
        show(await request("GET", `${path}/preview?encoding=${encodeURIComponent(encodings.value)}`));
      }),
    );
    use.addEventListener("click", async () => {
      if (isWaiting(use)) return;
      setWaiting(use, true);
      await attempt(async () => {
        await request("PATCH", path, { encoding: encodings.value });
        node.close();
        await reload();
      });
      setWaiting(use, false);
    });
    fill(choice, field(t("preview.encoding"), encodings, t("preview.encodingHint")), use);
  }
  const passages = material.num_passages > 0 ? passageFold(material, path, attempt) : null;
  const node = dialog(material.title, choice, problem, warnings, text, passages);
  show(preview);
}

/** The passages, read when somebody wants to see them. */
function passageFold({ num_passages: count }, path, attempt) {
  const fold = element("details", { class: "more" }, element("summary", {}, t("preview.passages", { count })));
  fold.addEventListener("toggle", () => {
    if (fold.open && fold.children.length === 1) attempt(() => fillPassages(fold, path));
  });
  return fold;
}

async function fillPassages(root, path) {
  const { passages } = await request("GET", `${path}/passages`);
  // Folded and opened again meanwhile, it has asked twice.
  root.querySelector("ol")?.remove();
  root.append(
    element(
      "ol",
      { class: "passage-list" },
      passages.map((passage) =>
        element(
          "li",
          {},
          element(
            "p",
            { class: "passage-head" },
            [placeText(passage.place), passage.heading, plural("preview.tokens", passage.num_tokens)].filter(Boolean).join(" · "),
          ),
          element("p", { class: "passage-text", dir: "auto" }, cleaned(passage.text)),
        ),
      ),
    ),
  );
}
