"""The events of a response, for answers that the scripted engine does not give."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from engine.api import Finish, FinishDetail, FinishType, SamplingParams, Usage
from server.service.answer_pieces import Piece
from server.service.errors import InternalError
from server.service.prices import PriceList
from server.service.response_events import ResponseEncoder, whole_response
from server.service.response_object import ResponseHead
from server.service.response_schemas import ResponseBody
from tests.server.service.harness import MODEL, Json
from tests.server.service.response_stream import events_of

HEAD = ResponseHead("k", 1, MODEL, ResponseBody(input="hi"), SamplingParams(), None, False)


def encoded(pieces: Sequence[Piece], kind: FinishType) -> list[Json]:
    encoder = ResponseEncoder(HEAD)
    finish = Finish(FinishDetail(kind), Usage(3, 5, 1))
    frames = encoder.opening(0)
    for piece in pieces:
        frames += encoder.piece(0, piece)
    frames += encoder.finish(0, finish, finish.detail.to_json())
    return events_of((frames + encoder.last([finish.usage], 4)).decode())


@pytest.mark.parametrize(
    ("pieces", "kind", "items"),
    [
        (
            [Piece(reasoning="hm"), Piece("4", reasoning="m"), Piece("2")],
            FinishType.EOS,
            [("reasoning", "completed", "hmm"), ("message", "completed", "42")],
        ),
        (
            [Piece(reasoning="hm"), Piece("4")],
            FinishType.MAX_TOKENS,
            [("reasoning", "completed", "hm"), ("message", "incomplete", "4")],
        ),
        (
            [Piece(reasoning="hm")],
            FinishType.MAX_TOKENS,
            [("reasoning", "incomplete", "hm")],
        ),
        (
            [Piece(reasoning="hm")],
            FinishType.EOS,
            [("reasoning", "completed", "hm"), ("message", "completed", "")],
        ),
        ([], FinishType.MAX_TOKENS, [("message", "incomplete", "")]),
    ],
)
def test_reasoning_is_an_item_of_its_own(
    pieces: list[Piece], kind: FinishType, items: list[tuple[str, str, str]]
) -> None:
    events = encoded(pieces, kind)
    response = events[-1]["response"]
    assert [
        (item["type"], item["status"], "".join(part["text"] for part in item["content"]))
        for item in response["output"]
    ] == items
    assert response["usage"]["output_tokens_details"] == {"reasoning_tokens": 4}
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == response["output"]
    joined = Piece(
        "".join(piece.text for piece in pieces), "".join(piece.reasoning for piece in pieces)
    )
    finish = Finish(FinishDetail(kind), Usage(3, 5, 1))
    assert json.loads(whole_response(HEAD, joined, finish, finish.detail.to_json(), 4)) == response


def test_prices_give_the_cost() -> None:
    prices = PriceList(1.0, 2.0, 4.0, "EUR")
    head = ResponseHead(
        "k", 1, MODEL, ResponseBody(input="hi"), SamplingParams(), None, False, prices
    )
    finish = Finish(FinishDetail(FinishType.EOS), Usage(1000, 500, 200))
    told = json.loads(whole_response(head, Piece("x"), finish, {}, 0))
    assert told["usage"]["cost"] == {"amount": pytest.approx(0.0038), "currency": "EUR"}


def test_an_error_before_the_first_piece_still_opens_the_stream() -> None:
    events = events_of(ResponseEncoder(HEAD).error(InternalError("The engine failed.")).decode())
    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert events[-1]["response"]["error"]["message"] == "The engine failed."
