"""What a model of transformers asks of its attention, found by running it, and a trial at start
that its answers through the engine's cache are its own.

First every attention call of one short pass is looked at: sizes, scale, cap, mask, and anything
that the engine's attention does not have, which refuses the model. Then two sequences go through a
paged cache together, in chunks, and must give the logits that the model gives to each one alone
with its plain attention. This also catches models that keep a state elsewhere, mix neighbouring
tokens, or do not take their positions from `position_ids`: in float32 surely, in 16 bits only where
the difference is plain, so that what is known to have a state is also refused by its layers."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.attention import AttentionLayout, SequenceSpan, create_attention
from engine.kv.kv_cache import KVCache
from engine.models.generic import NAME, AttentionForm, GenericModel, refusal

_LENGTHS = (21, 13)
_CHUNK_ENDS = ((6, 5), (11, 9), (15, 13), _LENGTHS)
"""Where each of the two sequences stands after each step of the trial."""
_BLOCK_SIZE = 4
_MISFITS = (AttributeError, TypeError, ValueError, RuntimeError, LookupError)
"""What code of transformers raises when it is used in a way that it was not made for."""
_IGNORED = frozenset(
    {
        "dropout",
        "scaling",
        "softcap",
        "sliding_window",  # the mask says the same, and not every model has it here
        "is_causal",
        "position_ids",
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "cache",
        "past_key_values",
        "cache_position",
        "return_dict",
        "logits_to_keep",
    }
)
"""Keywords that change nothing here, or are read by name."""


@dataclass(frozen=True, slots=True)
class MaskForm:
    """What stands in the place of a mask tensor: causal, in a window where that is not None, or
    `problem` says what else."""

    window: int | None = None
    problem: str | None = None


@dataclass(slots=True)
class _Record:
    """What one pass has asked for."""

    forms: dict[nn.Module, AttentionForm] = field(default_factory=dict)
    sizes: set[tuple[int, int]] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Probed:
    """A model that may be served, and the sizes of its cache."""

    model: GenericModel
    forms: dict[nn.Module, AttentionForm]
    vocab_size: int
    num_kv_heads: int
    head_dim: int


_record: ContextVar[_Record | None] = ContextVar("record", default=None)


def describe_mask(
    *, mask_function: Callable[..., Any], local_size: int | None = None, **_kwargs: Any
) -> MaskForm | None:
    """Registered as the maker of masks: describes the mask during a probe, and makes none in a
    step, where the cache knows what each token may see."""
    if _record.get() is None:
        return None
    try:
        return _describe(mask_function, local_size)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        return MaskForm(problem=f"a mask of its own ({error})")


def _describe(mask_function: Callable[..., Any], local_size: int | None) -> MaskForm:
    """Compares the mask with the plain and with the windowed one, near the diagonal and near the
    window's edge, for sequences longer than the window."""
    far = 3 * (local_size or 16) + 5
    queries = torch.tensor([0, 1, 5, *range(far - 6, far)])[:, None]
    keys = torch.arange(far)[None, :]
    zero = torch.zeros((), dtype=torch.int64)
    allowed = torch.as_tensor(mask_function(zero, zero, queries, keys)).expand(
        queries.shape[0], far
    )
    causal = keys <= queries
    for window in dict.fromkeys((None, local_size)):
        expected = causal if window is None else causal & (keys > queries - window)
        if torch.equal(allowed, expected):
            return MaskForm(window)
    return MaskForm(problem="a mask that is neither causal nor a sliding window")


def _look(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """In the place of the registered function during a probe: notes the call and returns zeros of
    the right form."""
    record = _record.get()
    assert record is not None
    record.problems += _problems(module, query, key, value, mask, kwargs)
    if module in record.forms:
        record.problems.append("a layer that attends twice")
    scale = kwargs.get("scaling")
    record.forms[module] = AttentionForm(
        layer=len(record.forms),
        scale=query.shape[-1] ** -0.5 if scale is None else float(scale),
        window=mask.window if isinstance(mask, MaskForm) else None,
        soft_cap=kwargs.get("softcap"),
    )
    record.sizes.add((key.shape[1], key.shape[3]))
    return torch.zeros_like(query.transpose(1, 2)), None


def _problems(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Any, kwargs: dict[str, Any]
) -> list[str]:
    problems = []
    if key.shape != value.shape or key.shape[3] != query.shape[3]:
        problems.append("values of another width than keys")
    if key.shape[2] != query.shape[2]:
        problems.append("keys from elsewhere than the tokens themselves")
    if getattr(module, "is_causal", True) is False or kwargs.get("is_causal") is False:
        problems.append("attention that is not causal")
    if getattr(module, "sinks", None) is not None:
        problems.append("attention sinks")
    if isinstance(mask, MaskForm):
        if mask.problem is not None:
            problems.append(mask.problem)
    else:
        problems.append("a mask that it makes itself")
    for name, given in kwargs.items():
        if name not in _IGNORED and given is not None and given is not False:
            problems.append(f"an attention argument {name!r}")
    return problems


def probe(model: Any, architecture: str) -> Probed:
    """Looks at `model`, a causal language model of transformers that attends by `NAME`, and tries
    it. Raises UnsupportedModelError, which says what stands in the way."""
    body = model.get_decoder()
    if body is model:
        raise refusal(architecture, "its body cannot be told from its head")
    if any(isinstance(module, nn.Conv1d) for module in body.modules()):
        raise refusal(architecture, "it has convolutions, which keep a state of their own")
    vocab_size = model.get_input_embeddings().weight.shape[0]
    generator = torch.Generator().manual_seed(0)
    sequences = [
        torch.randint(0, vocab_size, (length,), generator=generator).to(body.device)
        for length in _LENGTHS
    ]
    with torch.inference_mode():
        record = _watch(model, architecture, sequences[0])
        (num_kv_heads, head_dim) = next(iter(record.sizes))
        expected = [_alone(model, architecture, sequence) for sequence in sequences]
        generic = GenericModel(model, record.forms)
        cache = KVCache(
            num_layers=len(record.forms),
            num_blocks=32,
            block_size=_BLOCK_SIZE,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            dtype=body.dtype,
            device=body.device,
        )
        try:
            got = _together(generic, cache, sequences)
        except _MISFITS as error:
            raise refusal(architecture, f"a trial at start failed ({error!r})") from error
    # Rounding to 16 bits may send a token to another expert. What is wrong in kind is wrong by
    # a multiple of this, behind each of the chunks' ends at least.
    tolerance = 1e-3 if body.dtype == torch.float32 else 0.1
    for ours, theirs in zip(got, expected, strict=True):
        difference = (ours - theirs).abs().mean()
        if not difference <= tolerance * theirs.abs().mean():
            raise refusal(
                architecture,
                "a trial at start gave other logits through the paged cache than without it",
            )
    vocab_size = got[0].shape[1]
    return Probed(generic, record.forms, vocab_size, num_kv_heads, head_dim)


def _watch(model: Any, architecture: str, sequence: Tensor) -> _Record:
    """The record of one pass with `_look` in the place of attention."""
    from transformers import AttentionInterface

    registered = AttentionInterface()[NAME]
    record = _Record()
    token = _record.set(record)
    AttentionInterface.register(NAME, _look)
    try:
        positions = torch.arange(sequence.shape[0], device=sequence.device)[None]
        body = model.get_decoder()
        body(input_ids=sequence[None], position_ids=positions, use_cache=False)
    except _MISFITS as error:
        raise refusal(architecture, f"its layers do not fit ({error})") from error
    finally:
        AttentionInterface.register(NAME, registered)
        _record.reset(token)
    if not record.forms:
        raise refusal(architecture, "no layer attends by the registered function")
    num_layers = model.config.get_text_config().num_hidden_layers
    if len(record.forms) != num_layers:
        raise refusal(
            architecture, f"{len(record.forms)} of its {num_layers} layers attend in the usual way"
        )
    if record.problems:
        raise refusal(architecture, f"it uses {', '.join(dict.fromkeys(record.problems))}")
    if len(record.sizes) != 1:
        raise refusal(architecture, "its layers have key heads of different number or width")
    return record


def _alone(model: Any, architecture: str, sequence: Tensor) -> Tensor:
    """Logits [T, vocab] of the model itself, with its own plain attention."""
    try:
        model.set_attn_implementation("eager")
        logits: Tensor = model(input_ids=sequence[None], use_cache=False).logits[0].float()
        model.set_attn_implementation(NAME)
    except (ValueError, RuntimeError) as error:
        raise refusal(architecture, f"it cannot be tried ({error})") from error
    return logits


def _together(model: GenericModel, cache: KVCache, sequences: list[Tensor]) -> list[Tensor]:
    """Logits of both sequences from the steps of `_CHUNK_ENDS`. The blocks of a sequence do not lie
    in a run."""
    hidden: list[list[Tensor]] = [[] for _ in sequences]
    device = sequences[0].device
    done = [0] * len(sequences)
    for ends in _CHUNK_ENDS:
        ids, positions, slot_mapping, spans, rows = [], [], [], [], 0
        parts = []
        for index, (sequence, end) in enumerate(zip(sequences, ends, strict=True)):
            start, done[index] = done[index], end
            if start == end:
                continue
            where = torch.arange(end, device=device)
            # Every other block, so that the two sequences are interleaved.
            blocks = where // _BLOCK_SIZE * len(sequences) + index
            slots = blocks * _BLOCK_SIZE + where % _BLOCK_SIZE
            ids.append(sequence[start:end])
            positions.append(where[start:])
            slot_mapping.append(slots[start:])
            spans.append(SequenceSpan(rows, end - start, end, None, slots))
            parts.append((index, slice(rows, rows + end - start)))
            rows += end - start
        layout = AttentionLayout(torch.cat(slot_mapping), tuple(spans))
        attention = create_attention("reference", cache, layout)
        out = model.forward(torch.cat(ids), torch.cat(positions), attention)
        for index, part in parts:
            hidden[index].append(out[part])
    return [model.compute_logits(torch.cat(parts)) for parts in hidden]
