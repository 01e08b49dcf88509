// One loop of frames for the whole page: first everything that changes the document, then what
// measures it, so that the layout is worked out once.

const renders = new Set();
const measures = new Set();
let frame = null;

/** Calls `work` in the next frame, once however often it is asked for. */
export function onRender(work) {
  renders.add(work);
  request();
}

/** Calls `work` once after everything that renders in the next frame, or in the one that runs. */
export function afterRender(work) {
  measures.add(work);
  request();
}

/** Takes back what onRender or afterRender was asked for. */
export function forgetFrame(work) {
  renders.delete(work);
  measures.delete(work);
}

function request() {
  frame ??= requestAnimationFrame(run);
}

function run() {
  drain(renders);
  drain(measures);
  frame = null;
  if (renders.size + measures.size > 0) request();
}

/** What is added meanwhile waits for the next frame; one that fails does not stop the others. */
function drain(works) {
  const due = [...works];
  works.clear();
  for (const work of due) {
    try {
      work();
    } catch (error) {
      reportError(error);
    }
  }
}
