// Puts the page together.

import { Chat } from "./chat/chat.js";
import { Connection, socketUrl } from "./chat/connection.js";
import { Outbox } from "./chat/outbox.js";
import { Runs } from "./chat/runs.js";
import { explain, help } from "./answer/help-link.js";
import { onLanguageChange, startLanguage } from "./i18n.js";
import { logOut } from "./shell/account.js";
import { BudgetNote } from "./shell/budget-note.js";
import { Composer } from "./shell/composer.js";
import { ConversationActions } from "./shell/conversation-actions.js";
import { followConversations } from "./shell/conversation-news.js";
import { editOf, keepEdit, pruneDrafts } from "./shell/drafts.js";
import { Frame } from "./shell/frame.js";
import { languageButton } from "./shell/language-button.js";
import { ConnectionBar, ModelNote } from "./shell/model-note.js";
import { Opening } from "./shell/opening.js";
import { ProblemBar } from "./shell/problem-bar.js";
import { startShortcuts } from "./shell/page-shortcuts.js";
import { Sidebar } from "./shell/sidebar.js";
import { Status } from "./shell/status.js";
import { themeButton } from "./shell/theme-button.js";
import { confirmDiscard } from "./shell/unsent-list.js";
import { VersionBar } from "./shell/version-bar.js";
import { PassagePreview } from "./sources/passage-preview.js";
import { openSourcesOnPaper } from "./sources/printing.js";
import { SourcePanel } from "./sources/source-panel.js";
import { EditWaits } from "./transcript/edit-waits.js";
import { Scrolling } from "./transcript/scrolling.js";
import { Transcript } from "./transcript/transcript.js";

const find = (selector) => document.querySelector(selector);

await startLanguage();

const connection = new Connection(socketUrl());
const chat = new Chat(connection, new Outbox(connection), new Runs(connection));
const status = new Status(find("#status"));
const say = (text) => status.say(text);
const problem = new ProblemBar(find("#problem"));
const opening = new Opening(chat, connection, problem);
const composer = new Composer(find("#composer"), find("#composer-note"), connection);
const budget = new BudgetNote(find("#budget"), connection, { count: (text) => chat.count(text), say });
const panel = new SourcePanel(find("#source-panel"));
const preview = new PassagePreview(document.body, (passage) => panel.open(passage));
openSourcesOnPaper(find("#messages"));
const modelNote = new ModelNote(find("#model-note"), connection);
const connectionBar = new ConnectionBar(find("#connection"), connection);
const versionBar = new VersionBar(find("#version"), connection);
const actions = new ConversationActions();
const sidebar = new Sidebar({ root: find("#sidebar"), backdrop: find("#backdrop"), opener: find("#menu"), actions });
const frame = new Frame(chat, opening, () => logOut(connection, problem));
const transcript = new Transcript(find("#messages"), new Scrolling(find("#scroll"), find("#newest")), {
  editWaits: new EditWaits(find("#newest"), find("#scroll")),
  connection,
  isBusy: () => chat.isBusy,
  continueAnswer: (answer, options) => chat.continueAnswer(answer, options),
  retry: (answer) => chat.retry(answer),
  regenerate: (answer) => chat.regenerate(answer),
  carryOn: (answer) => chat.carryOn(answer),
  undoSeam: (answer) => chat.undoSeam(answer),
  edit: (question, text) => chat.edit(question, text),
  discard,
  choose: (message, direction) => chat.choose(message, direction),
  versions: (message) => chat.versions(message),
  linksOf: (message) => chat.conversation.linksOf(message),
  openConversation: ({ conversation, message }) => open(conversation, message),
  hold: (question) => chat.hold(question),
  editOf: (question) => editOf(chat.conversation.id, question.id ?? question.key),
  keepEdit: (question, text) => keepEdit(chat.conversation.id, question.id ?? question.key, text),
  isTooLong: (text) => composer.isTooLong(text),
  say,
  newConversation: startNew,
  openSource: (passage) => panel.open(passage),
  watchCitations: (prose, find) => preview.watch(prose, find),
  judge: (answer, value, note) => chat.judge(answer, value, note),
});

function startNew() {
  opening.startNew();
}

async function discard(answer) {
  const { conversation } = chat;
  const question = conversation.questionOf(answer);
  if (!(await confirmDiscard(question?.text ?? null))) return;
  if (!chat.discard(answer)) return;
  if (question !== null) keepEdit(conversation.id, question.key, "");
  if (conversation.isEmpty) startNew();
}

/** Shows a conversation, at a message of it unless that is null. */
async function open(id, message) {
  const isShown = await opening.open(id);
  if (isShown && message !== null && chat.turnTo(message)) transcript.reveal(message);
}

/** The course whose conversations are listed; null: none yet. */
let listed = null;

function listConversations() {
  listed = opening.courseId;
  sidebar.reload(listed);
}

/** The sidebar is about the course that is shown. */
function followCourse() {
  sidebar.showCourses(opening.courses, opening.courseId);
  if (opening.courseId !== listed) listConversations();
}

chat.addEventListener("show", () => {
  panel.close();
  transcript.show(chat.conversation.messages);
  composer.useDraft(chat.conversation.id);
  sidebar.current = chat.conversation.id;
  status.watch(chat.conversation.runningAnswer);
  followCourse();
  frame.refresh();
});
chat.addEventListener("branch", () => {
  transcript.update(chat.conversation.messages);
  frame.refresh();
});
chat.addEventListener("append", (event) => {
  transcript.append(...event.detail);
  frame.refresh();
});
chat.addEventListener("running", () => {
  const running = chat.conversation.runningAnswer;
  composer.isRunning = running !== null;
  composer.isStopping = running?.isStopping ?? false;
  if (running !== null) status.watch(running);
});
chat.addEventListener("accepted", ({ detail }) => {
  if (detail.isNew) {
    composer.moveDraft(detail.conversation);
    sidebar.endSearch();
  }
  sidebar.current = detail.conversation;
  listConversations();
});
for (const type of ["begun", "ended"]) chat.addEventListener(type, listConversations);
for (const type of ["running", "begun"]) chat.addEventListener(type, () => (sidebar.unsent = chat.unsent));
chat.addEventListener("refused", ({ detail }) => problem.showError(detail));
chat.addEventListener("returned", (event) => {
  if (composer.text === "") composer.text = event.detail;
});

chat.addEventListener("unasked", ({ detail: { question, text } }) => {
  keepEdit(chat.conversation.id, question.id, text);
  transcript.show(chat.conversation.messages);
});

composer.addEventListener("ask", (event) => chat.ask(event.detail));
composer.addEventListener("stop", () => chat.stop());
composer.addEventListener("change", () => budget.update(composer.text));

sidebar.addEventListener("new", startNew);
sidebar.addEventListener("open", ({ detail }) => open(detail.id, detail.message));
sidebar.addEventListener("open-unsent", ({ detail }) => opening.openUnsent(detail));
sidebar.addEventListener("discard-unsent", ({ detail }) => {
  keepEdit(null, detail, "");
  chat.discardUnsent(detail);
});
sidebar.addEventListener("course", ({ detail }) => opening.changeCourse(detail));
sidebar.addEventListener("say", ({ detail }) => say(detail));
for (const part of [sidebar, actions, help]) part.addEventListener("failed", ({ detail }) => problem.show(detail));

opening.addEventListener("courses", () => {
  followCourse();
  frame.refresh();
});
opening.addEventListener("new", () => composer.focus());
opening.addEventListener("stranger", () => chat.forgetUnsent());
opening.addEventListener("missing", ({ detail }) => say(detail));

followConversations({ actions, chat, composer, transcript, sidebar, opening, frame, startNew, listConversations, say });
find("#help").addEventListener("click", () => explain("words"));
const showHelp = () => explain("keys");
startShortcuts({ chat, composer, sidebar, transcript, panel, area: find("#scroll"), say, startNew, showHelp });
languageButton(find("#language"));
onLanguageChange(() => {
  for (const part of [transcript, sidebar, modelNote, connectionBar, versionBar, composer, budget, panel, frame]) part.refresh();
});
themeButton(find("#theme"));
pruneDrafts();

await opening.start();
document.documentElement.classList.add("is-ready");
