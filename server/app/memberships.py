"""`Memberships`: join codes, who comes into a course, who leaves it."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from server.app.people import Person
from server.service.auth import UserId
from server.service.errors import (
    BadRequestError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
)
from server.store.courses import CourseNameTakenError, Courses
from server.store.enrolments import CourseRole, EnrolledPerson, Enrolments
from server.store.schema import Course

_CODE_LETTERS = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
"""Without 0 and O, 1, I and L, which look like each other: 31 letters, eight are 39 bits."""
_CODE_LENGTH = 8
_ATTEMPTS = 5


class Memberships:
    """Owned by the event loop. One change of who teaches runs at a time: the last teacher stays."""

    def __init__(
        self,
        courses: Courses,
        enrolments: Enrolments,
        on_change: Callable[[UserId], None],
    ) -> None:
        """`on_change` hears of each user who may less than before."""
        self._courses = courses
        self._enrolments = enrolments
        self._on_change = on_change
        self._changing = asyncio.Lock()

    async def course_of_code(self, code: str) -> Course:
        """The course that a typed code opens. Raises NotFoundError."""
        folded = fold_code(code)
        course = await self._courses.with_code(folded) if folded else None
        if course is None:
            raise NotFoundError(
                "No course has this code. Check it, or ask your teacher for the present one.",
                message_zh="没有与此代码对应的课程，请检查代码，或向教师索取最新代码。",
                param="code",
                reason="unknown_code",
            )
        return course

    async def join(self, person: Person, course: Course) -> None:
        """Puts somebody with an account into a course; whoever is in it stays what they are."""
        await self._enrolments.enrol(course.id, person.user, "student")

    async def renew_code(self, course_id: str) -> Course:
        """Another join code; the one before opens nothing any more. Raises NotFoundError."""
        for attempt in range(_ATTEMPTS):
            try:
                course = await self._courses.change(course_id, {"join_code": new_code()})
            except CourseNameTakenError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            if course is None:
                break
            return course
        raise NotFoundError("There is no such course.", param="course")

    async def close_code(self, course_id: str) -> Course:
        """Nobody joins any more. Raises NotFoundError."""
        course = await self._courses.change(course_id, {"join_code": None})
        if course is None:
            raise NotFoundError("There is no such course.", param="course")
        return course

    async def find(self, course_id: str, user_id: str) -> EnrolledPerson:
        """Somebody in the course. Raises NotFoundError."""
        for found in await self._enrolments.people(course_id):
            if found.user.id == user_id:
                return found
        raise NotFoundError("Nobody in this course has that id.", param="person")

    async def set_role(self, course_id: str, user_id: str, role: CourseRole) -> None:
        """Makes somebody of the course its teacher or its student. Raises NotFoundError, and
        BadRequestError for a student's account and for the last teacher."""
        found = await self.find(course_id, user_id)
        if found.enrolment.role == role:
            return
        if role == "teacher" and found.user.role != "teacher":
            raise BadRequestError(
                "Only somebody with a teacher's account can teach a course.",
                message_zh="只有拥有教师账号的人才能教授课程。",
                param="role",
                reason="not_a_teacher",
            )
        async with self._changing:
            if role == "student":
                await self._check_not_last(course_id)
            await self._enrolments.set_role(course_id, user_id, role)
        if role == "student":
            self._on_change(UserId(user_id))

    async def remove(self, course_id: str, user_id: str) -> None:
        """Takes somebody out of a course; their questions stay in its records. Raises
        NotFoundError, and BadRequestError for the last teacher."""
        async with self._changing:
            found = await self.find(course_id, user_id)
            if found.enrolment.role == "teacher":
                await self._check_not_last(course_id)
            await self._enrolments.remove(course_id, user_id)
        self._on_change(UserId(user_id))

    async def leave_all(self, user: UserId, go: Callable[[UserId], Awaitable[None]]) -> None:
        """Lets somebody `go` for ever, who is not the only teacher of a course. Raises
        ConflictError, and what `go` raises."""
        async with self._changing:
            for found in await self._enrolments.courses_of(user):
                if found.enrolment is not None and found.enrolment.role == "teacher":
                    await self._check_taught_by_others(found.course)
            await go(user)

    async def check_own_student(
        self, teacher: UserId, found: EnrolledPerson, *, alone: bool
    ) -> None:
        """Whether a teacher may act on somebody's account: only on a student's, and with `alone`
        only where nobody else teaches them. Raises ForbiddenError."""
        if found.user.role != "student":
            raise ForbiddenError(
                "This can be done for students only.",
                message_zh="只能对学生账号执行此操作。",
                reason="not_a_student",
            )
        if alone and await self._enrolments.courses_taught_by_others(found.user.id, teacher):
            raise ForbiddenError(
                "This student is in courses of other teachers too; remove them from this course "
                "instead.",
                message_zh="该学生还选修了其他教师的课程，请改为将其移出本课程。",
                reason="other_teachers",
            )

    async def _check_taught_by_others(self, course: Course) -> None:
        if await self._num_teachers(course.id) <= 1:
            raise ConflictError(
                f"You are the only teacher of {course.title}. Make somebody else its teacher, or "
                "delete the course, before you delete your account.",
                message_zh=f"您是课程“{course.title}”唯一的教师。请先将其他人设为教师，或删除该课程，"
                "再删除账号。",
                reason="last_teacher",
            )

    async def _num_teachers(self, course_id: str) -> int:
        people = await self._enrolments.people(course_id)
        return sum(one.enrolment.role == "teacher" for one in people)

    async def _check_not_last(self, course_id: str) -> None:
        if await self._num_teachers(course_id) <= 1:
            raise BadRequestError(
                "A course keeps at least one teacher.",
                message_zh="课程至少要保留一名教师。",
                param="person",
                reason="last_teacher",
            )


def new_code() -> str:
    """A join code that is hard to guess and easy to read out."""
    return "".join(secrets.choice(_CODE_LETTERS) for _ in range(_CODE_LENGTH))


def fold_code(code: str) -> str:
    """The code as it is kept, of one as people type it; empty for what cannot be one."""
    folded = "".join(code[:64].upper().split()).replace("-", "")
    return folded if folded.isascii() and folded.isalnum() else ""
