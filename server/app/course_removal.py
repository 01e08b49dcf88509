"""`CourseRemoval`: a course goes, with all that hangs on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from server.app.run_end import end_runs, leave_runs
from server.service.runs import RunRegistry
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
        this order: what fails in between leaves a course that can be removed again. What comes
        into the course meanwhile goes with it. Raises ConversationBusyError."""
        is_removed = False
        while not is_removed:
            ids = frozenset(await self._courses.conversation_ids(course.id))
            await end_runs(partial(self._runs.active_in_any, ids))
            deleted = frozenset(await self._conversations.delete_of_course(course.id))
            leave_runs(partial(self._runs.active_in_any, deleted))
            for card in await self._materials.of_course(course.id):
                await self._remove_material(card.material.id)
            is_removed = await self._courses.delete(course.id)
