"""What a file's name tells: a name that is safe to show, the kind of material, the week. Pure."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Literal, TypeAlias, get_args

import regex

from server.store.analysis import fold, index_words
from server.store.concepts import KEY_MARK

Kind: TypeAlias = Literal["lecture", "lab", "exam", "admin", "other"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAX_NAME_CHARS = 200
MAX_WEEK = 60

_WORDS: dict[Kind, tuple[str, ...]] = {
    # In the order in which they decide: "exam rules" is about the exam, "lab schedule" is admin.
    "admin": (
        *("syllabus", "schedule", "calendar", "staff", "policy", "policies", "announcement"),
        *("announcements", "welcome", "grading", "contact", "contacts", "readme", "overview"),
        *(
            "大纲",
            "日程",
            "校历",
            "日历",
            "通知",
            "公告",
            "教师",
            "助教",
            "考核方式",
            "评分",
            "课程简介",
        ),
        *("课程介绍", "课程说明", "教学计划", "教学进度", "联系方式"),
    ),
    "exam": (
        *("exam", "exams", "midterm", "midterms", "final", "finals", "quiz", "quizzes", "test"),
        *("考试", "考题", "试卷", "试题", "期中", "期末", "测验", "小测", "真题", "答案卷"),
    ),
    "lab": (
        *("lab", "labs", "hw", "homework", "homeworks", "assignment", "assignments", "exercise"),
        *("exercises", "practical", "project", "projects", "tutorial", "worksheet", "pset", "ps"),
        *("实验", "作业", "习题", "练习", "上机", "实践", "课程设计", "大作业", "实训", "项目"),
    ),
    "lecture": (
        *("lecture", "lectures", "lec", "slides", "slide", "chapter", "chapters", "ch", "notes"),
        *("note", "handout", "handouts", "unit", "lesson", "class", "reading", "readings", "week"),
        *("讲义", "课件", "讲", "章", "节", "课", "教案", "幻灯片", "笔记", "阅读"),
    ),
}
_KIND_OF = {word: kind for kind, words in _WORDS.items() for word in words}
_HAN_WORDS = sorted((word for word in _KIND_OF if not word.isascii()), key=len, reverse=True)
_HAN_WORD = regex.compile("|".join(map(regex.escape, _HAN_WORDS)))
_LATIN_WORD = regex.compile(r"[a-z]+")
_SEPARATORS = regex.compile(r"[_\-.\s()\[\]（）【】+]+")
_GLUED = regex.compile(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])(?!\d*(?:st|nd|rd|th)\b)")
_SHORT_WEEK = regex.compile(r"\b(?:w|wk)\s?(?P<n>\d{1,2})\b")
_WEEK_KEY = f"{KEY_MARK}week"
_LANGUAGE_ENDING = regex.compile(r"\.(?:en|zh|zh-cn|cn)$")


@dataclass(frozen=True, slots=True)
class NameGuess:
    """What a name says; `week` is None where it names none."""

    kind: Kind
    week: int | None


def guess(name: str) -> NameGuess:
    """The kind and week that a file's name, or its folders' names, tell: `week05/lab3.pdf`,
    `第5周/实验三.docx`. What stands nearer to the end counts first."""
    parts = [_readable(part) for part in reversed(PurePosixPath(name).parts)]
    kinds = [kind for part in parts if (kind := _kind(part))]
    weeks = [week for part in parts if (week := _week(part))]
    return NameGuess(kinds[0] if kinds else "other", weeks[0] if weeks else None)


def shown_name(given: str) -> str:
    """What a file that somebody calls `given` is called here: its last part, in one line. Empty
    where nothing is left."""
    parts = _clean_parts(given)
    return _cut(parts[-1]) if parts else ""


def shown_path(given: str) -> str:
    """The same, with the folders below which it lay; for files of a folder or an archive."""
    name, folders = shown_name(given), _clean_parts(given)[:-1]
    if not name:
        return ""
    path = name
    for folder in reversed(folders):
        if len(folder) + 1 + len(path) > MAX_NAME_CHARS:
            break
        path = f"{folder}/{path}"
    return path


def _clean_parts(given: str) -> list[str]:
    text = unicodedata.normalize("NFC", given.encode("utf-8", "replace").decode("utf-8"))
    parts = ("".join(map(_shown, part)).strip() for part in text.replace("\\", "/").split("/"))
    return [part for part in parts if part not in ("", ".", "..")]


def _shown(character: str) -> str:
    """Control characters, and those that turn the direction of writing, are not shown."""
    category = unicodedata.category(character)
    if category in ("Zl", "Zp", "Zs"):
        return " "
    return "" if category in ("Cc", "Cf", "Cs") else character


def _cut(name: str) -> str:
    if len(name) <= MAX_NAME_CHARS:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix) > 10:
        return name[:MAX_NAME_CHARS]
    return stem[: MAX_NAME_CHARS - len(suffix) - 2] + "…" + dot + suffix


def _readable(part: str) -> str:
    """A file's or folder's name as words: `HW2_final.en.md` as `hw 2 final`."""
    stem = fold(part)
    stem = PurePosixPath(stem).stem if PurePosixPath(stem).suffix[1:].isalnum() else stem
    stem = _LANGUAGE_ENDING.sub("", stem)
    return str(_GLUED.sub(" ", _SEPARATORS.sub(" ", stem))).strip()


def _kind(words: str) -> Kind | None:
    found = {_KIND_OF[word] for word in _LATIN_WORD.findall(words) if word in _KIND_OF}
    found |= {_KIND_OF[word] for word in _HAN_WORD.findall(words)}
    return next((kind for kind in _WORDS if kind in found), None)


def _week(words: str) -> int | None:
    keys = [word for word in index_words(words) if word.startswith(_WEEK_KEY)]
    short = _SHORT_WEEK.search(words)
    # A weekend has a key that begins alike.
    found = (key.removeprefix(_WEEK_KEY) for key in keys)
    numbers = [int(number) for number in found if number.isdecimal()]
    numbers += [int(short["n"])] if short else []
    return next((n for n in numbers if 1 <= n <= MAX_WEEK), None)
