// Steps from question to question in the transcript.

const TOLERANCE_PX = 8;

/**
 * Goes to the question before (-1) or after (1) the one that has the focus, or else the one at the
 * top of `area`. False: there is none.
 */
export function stepToQuestion(area, direction) {
  const questions = [...area.querySelectorAll(".question")];
  const question = neighbour(area, questions, direction);
  if (question === undefined) return false;
  question.scrollIntoView({ block: "start" });
  // What is pressed next begins from here.
  question.focus({ preventScroll: true });
  return true;
}

function neighbour(area, questions, direction) {
  const focused = questions.indexOf(document.activeElement);
  if (focused >= 0) return questions[focused + direction];
  const top = area.getBoundingClientRect().top + parseFloat(getComputedStyle(area).scrollPaddingTop || "0");
  const distance = (question) => question.getBoundingClientRect().top - top;
  return direction < 0
    ? questions.findLast((question) => distance(question) < -TOLERANCE_PX)
    : questions.find((question) => distance(question) > TOLERANCE_PX);
}
