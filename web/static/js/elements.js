// Builds DOM elements. Text always goes in as text nodes; nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/**
 * element("button", {class: "send", type: "button", onclick: submit, "aria-label": name}, child…)
 * Keys that start with "on" are listeners, a value of true is an empty attribute, false and null
 * leave the attribute out.
 */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "data") Object.assign(node.dataset, value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...shown(children));
  return node;
}

function shown(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

const PATHS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h10",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  down: "M12 5v14M6 13l6 6 6-6",
  chevron: "M9 6l6 6-6 6",
  copy: "M9 9h10v11H9zM15 9V5H5v10h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  book: "M5 5.5C7 4.3 9.5 4.3 12 6c2.500-1.700 5-1.700 7-.5V19c-2-1.200-4.500-1.200-7 .5-2.500-1.700-5-1.700-7-.5zM12 6v13.500",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 3v2M12 19v2M3 12h2M19 12h2M5.600 5.600l1.400 1.400M17 17l1.400 1.400M18.400 5.600L17 7M7 17l-1.400 1.400",
  moon: "M19.500 14.500A8 8 0 019.500 4.500a8 8 0 1010 10z",
  auto: "M12 4a8 8 0 100 16zM12 4a8 8 0 010 16",
  retry: "M19 12a7 7 0 11-2.100-5M19 4v4h-4",
  search: "M11 5a6 6 0 100 12 6 6 0 000-12zM15.500 15.500L20 20",
  cut: "M4 7h16M4 12h16M4 17h5M13 17h.100M17 17h.100",
  alert: "M12 4.500l8.500 15h-17zM12 10v4.500M12 17v.200",
  info: "M12 4a8 8 0 100 16 8 8 0 000-16zM12 11v5M12 8v.200",
  "thumb-up": "M7 11v9H4v-9zM7 11l4-7c1.600 0 2.500 1.200 2.200 2.700L12.600 10H19a1.800 1.800 0 011.800 2.200l-1.300 6.200A2 2 0 0117.500 20H7",
  "thumb-down": "M17 13V4h3v9zM17 13l-4 7c-1.600 0-2.500-1.200-2.200-2.700l.600-3.300H5a1.800 1.800 0 01-1.800-2.200l1.300-6.200A2 2 0 016.500 4H17",
  undo: "M9 14L4 9l5-5M4 9h10a6 6 0 010 12h-3",
  summary: "M6 4h12v16H6zM9 9h6M9 13h6M9 17h3",
  more: "M6 12h.010M12 12h.010M18 12h.010",
  external: "M9 6H6v12h12v-3M13 5h6v6M19 5l-8 8",
  pencil: "M4 20l1-4.500L16.500 4l3.500 3.500L8.500 19zM14 6.500l3.500 3.500",
};

/** A line icon, hidden from assistive technology (the button around it has the name). */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** Replaces the children of `node`, leaving out null and false. */
export function fill(node, ...children) {
  node.replaceChildren(...shown(children));
  return node;
}
