// The HTTP API of the course application.

/** A reply other than 2xx; `status` is 0 where no reply came. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path) {
  let response;
  try {
    response = await fetch(path, { headers: { Accept: "application/json" } });
  } catch (cause) {
    throw new ApiError(0, String(cause));
  }
  if (!response.ok) throw new ApiError(response.status, response.statusText);
  return response.json();
}

export const api = {
  courses: async () => (await get("/api/courses")).courses,
  conversations: async (course) =>
    (await get(`/api/conversations?course=${encodeURIComponent(course)}`)).conversations,
  conversation: (id) => get(`/api/conversations/${encodeURIComponent(id)}`),
  material: (id) => get(`/api/materials/${encodeURIComponent(id)}`),
};
