"""`CourseRemoval`: a course goes, with all that hangs on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from server.app.run_end import end_run
from server.service.runs import Run, RunRegistry
from server.store.conversations import Conversations
from server.store.courses import Courses
from server.store.materials import Materials
from server.store.schema import Course

RemoveMaterial = Callable[[str], Awaitable[None]]
"""Deletes a material by its id: row, passages, index words, bytes."""


class CourseRemoval:
    """Owned by the event loop; keeps no state of its own."""

    def __init__(
        self,
        courses: Courses,
        conversations: Conversations,
        materials: Materials,
        runs: RunRegistry,
        remove_material: RemoveMaterial,
    ) -> None:
        self._courses = courses
        self._conversations = conversations
        self._materials = materials
        self._runs = runs
        self._remove_material = remove_material

    async def remove(self, course: Course) -> None:
        """Ends what is being answered, then deletes conversations, materials and the course, in
        this order: what fails in between leaves a course that can be removed again. Raises
        ConversationBusyError."""
        while running := await self._running(course.id):
            for run in running:
                await end_run(run)
        await self._conversations.delete_of_course(course.id)
        for card in await self._materials.of_course(course.id):
            await self._remove_material(card.material.id)
        await self._courses.delete(course.id)

    async def _running(self, course_id: str) -> list[Run]:
        """Also what began while others were ended."""
        ids = await self._courses.conversation_ids(course_id)
        return [run for id in ids if (run := self._runs.active_in(id)) is not None]
