"""`PassageJudge`: the served model as a judge of passages that fit a question about equally well.

It is not asked whether a passage answers, which small models answer at random, but how likely they
hold the question after the passage (query likelihood: Ponte and Croft, 1998; with language models
of today Sachan et al., "Improving Passage Retrieval with Zero-Shot Question Generation", 2022).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from server.service.errors import ServiceError
from server.service.likelihood import Likelihood, LikelihoodQuestion
from server.store.analysis import is_han

_log = logging.getLogger(__name__)

_OPENING = "Course material:\n"
_LEAD = "\n\nA student's question that this material answers:"
_LEAD_ZH = "\n\n学生根据以上资料提出的问题："
"""A model that was trained on chats needs no template for this, and every model reads it."""


class PassageJudge:
    """Implements `Judge`. Owned by the event loop's thread."""

    def __init__(self, likelihood: Likelihood, *, max_tokens: int, time_s: float) -> None:
        """Passages are judged by their first `max_tokens` tokens, all that are judged
        at once or none; no more of a question's are after `time_s` seconds."""
        self._likelihood = likelihood
        self._max_tokens = max_tokens
        self._time_s = time_s

    async def likelihoods(
        self, question: str, texts: Sequence[str], *, user: str, course_id: str, since: float
    ) -> Sequence[float] | None:
        """See `Judge`."""
        left_s = self._time_s - (time.monotonic() - since)
        if left_s <= 0 or not self._likelihood.is_free:
            return None
        is_chinese = is_han(question)
        asked = LikelihoodQuestion(
            tuple(_OPENING + text for text in texts),
            _LEAD_ZH if is_chinese else _LEAD,
            question if is_chinese else f" {question}",
            self._max_tokens,
        )
        try:
            return await self._likelihood.ask(
                asked, user=user, salt=f"course:{course_id}", time_s=left_s
            )
        except TimeoutError:
            _log.info("Passages are ordered by words: the model took over %s s.", self._time_s)
        except ServiceError as error:
            _log.info("Passages are ordered by words: %s", error)
        return None
