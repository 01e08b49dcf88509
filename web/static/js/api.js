// The HTTP API of the course application.

import { language, t } from "./i18n.js";
import { forgetKept } from "./preferences.js";

/** A reply other than 2xx; `status` is 0 where no reply came. `param` names the wrong field. */
export class ApiError extends Error {
  constructor(status, { message = "", message_zh: chinese = null, code = null, param = null } = {}, retryAfterS = null) {
    super(message);
    this.status = status;
    this.chinese = chinese;
    this.code = code;
    this.param = param;
    this.retryAfterS = retryAfterS;
  }

  /** What happened, in the reader's language where it is known. */
  get words() {
    if (this.status === 0) return t("error.offline");
    return (language() === "zh" && this.chinese) || this.message || t("error.internal");
  }
}

/** Sends a request with a JSON body, or with FormData; the JSON of the reply, null without any. */
export async function request(method, path, body = undefined, headers = {}) {
  const isForm = body instanceof FormData;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers: { Accept: "application/json", ...(body === undefined || isForm ? {} : { "Content-Type": "application/json" }), ...headers },
      body: body === undefined || isForm ? body : JSON.stringify(body),
    });
  } catch (cause) {
    throw new ApiError(0, { message: String(cause) });
  }
  if (!response.ok) throw await failure(response);
  return response.status === 204 ? null : response.json();
}

async function failure(response) {
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  try {
    return new ApiError(response.status, (await response.json()).error, retryAfter);
  } catch {
    return new ApiError(response.status, { message: response.statusText }, retryAfter);
  }
}

const get = (path) => request("GET", path);

export const api = {
  me: () => get("/api/me"),
  courses: async () => (await get("/api/courses")).courses,
  /** {conversations, next}; `q`: what is looked for, `before`: the `next` of the page before. */
  conversations: ({ course, q = null, before = null, limit = null }) =>
    get(`/api/conversations?${query({ course, q, before, limit })}`),
  conversation: (id) => get(`/api/conversations/${encodeURIComponent(id)}`),
  renameConversation: (id, title) => request("PATCH", `/api/conversations/${encodeURIComponent(id)}`, { title: title.toWellFormed() }),
  deleteConversation: (id) => request("DELETE", `/api/conversations/${encodeURIComponent(id)}`),
  /** A part of a material: {around: a passage's id, chars}, or {offset, chars}. */
  material: (id, part) => get(`/api/materials/${encodeURIComponent(id)}?${new URLSearchParams(part)}`),
  /** Ends the session; what was written and not sent stays on no shared computer. */
  logOut: async () => {
    await request("POST", "/api/logout");
    forgetKept();
  },
};

/** A query string of the values that are not null. */
function query(values) {
  return new URLSearchParams(Object.entries(values).filter(([, value]) => value !== null));
}

/** The login page, which comes back here. */
export function loginAddress() {
  return `/login?next=${encodeURIComponent(location.pathname + location.search)}`;
}
