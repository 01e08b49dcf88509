from __future__ import annotations

from server.store.ids import new_id


def test_ids_sort_in_the_order_of_making() -> None:
    ids = [new_id() for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert {len(id_) for id_ in ids} == {26}
