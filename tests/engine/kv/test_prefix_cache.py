from __future__ import annotations

from engine.kv.block_pool import BlockId
from engine.kv.prefix_cache import BlockHash, PrefixCache, chain_hash, root_hash


def test_a_chain_depends_on_everything_before_it() -> None:
    root = root_hash("m", "")
    assert chain_hash(chain_hash(root, [1]), [2]) != chain_hash(chain_hash(root, [3]), [2])
    assert chain_hash(root, [1, 2]) == chain_hash(root_hash("m", ""), [1, 2])


def test_salts_and_models_have_different_roots() -> None:
    roots = {root_hash(model, salt) for model, salt in (("a", ""), ("a", "x"), ("ax", ""))}
    assert len(roots) == 3


def test_a_hash_collision_is_a_miss() -> None:
    """Two different blocks under one hash must never be taken for each other."""
    cache = PrefixCache()
    same = BlockHash(b"same")
    assert cache.insert(same, [1, 2], BlockId(0))
    assert cache.lookup(same, [1, 2]) == 0
    assert cache.lookup(same, [1, 3]) is None
    assert not cache.insert(same, [1, 3], BlockId(1))


def test_an_evicted_block_is_not_found() -> None:
    cache = PrefixCache()
    key = chain_hash(root_hash("m", ""), [1])
    cache.insert(key, [1], BlockId(5))
    cache.evict(BlockId(5))
    assert cache.lookup(key, [1]) is None
    assert len(cache) == 0
