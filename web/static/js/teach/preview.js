// What the server has read of a file, with the encodings that fit it, and its passages.

import { request } from "../api.js";
import { element, fill } from "../elements.js";
import { field, select } from "../forms.js";
import { plural, t } from "../i18n.js";
import { placeText } from "../sources/places.js";
import { dialog } from "./dialogs.js";
import { cleaned } from "../answer/seams.js";
import { reason } from "./material-row.js";

export async function showPreview(material, page, reload) {
  const path = `/api/materials/${encodeURIComponent(material.id)}`;
  const text = element("pre", { class: "preview-text", tabindex: "0", dir: "auto" });
  const choice = element("div", { class: "preview-choice" });
  const warnings = element("div", {});
  const passages = element("details", { class: "more" }, element("summary", {}, t("preview.passages", { count: material.num_passages })));
  passages.addEventListener("toggle", () => page.attempt(() => fillPassages(passages, path)), { once: true });
  const preview = await page.attempt(() => request("GET", `${path}/preview`));
  if (preview === undefined) return;

  const show = (shown) => {
    fill(text, cleaned(shown.text), shown.is_whole ? null : `\n${t("preview.cut")}`);
    fill(warnings, shown.warnings.map((warning) => element("p", { class: "material-warning" }, reason(warning))));
  };

  if (preview.candidates.length > 0) {
    const names = [...new Set([preview.encoding, ...preview.candidates.map(({ encoding }) => encoding)])].filter(Boolean);
    const encodings = select("encoding", names.map((name) => [name, name]), preview.encoding);
    const use = element("button", { class: "button", type: "button", hidden: true }, t("preview.use"));
    encodings.addEventListener("change", () =>
      page.attempt(async () => {
        use.hidden = encodings.value === preview.encoding;
        show(await request("GET", `${path}/preview?encoding=${encodeURIComponent(encodings.value)}`));
      }),
    );
    use.addEventListener("click", () =>
      page.attempt(async () => {
        use.disabled = true;
        await request("PATCH", path, { encoding: encodings.value });
        node.close();
        await reload();
      }),
    );
    fill(choice, field(t("preview.encoding"), encodings, t("preview.encodingHint")), use);
  }
  const node = dialog(material.title, choice, warnings, text, material.num_passages > 0 ? passages : null);
  show(preview);
}

async function fillPassages(root, path) {
  const { passages } = await request("GET", `${path}/passages`);
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
