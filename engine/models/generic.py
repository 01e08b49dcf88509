"""`GenericModel`: decoder-only models of other architectures, by the code of `transformers`.

Its models hand their attention to a function by name, and let others register one. The function
registered here writes keys and values into the engine's paged cache and attends there, so such a
model is served like any other: batched, in chunks, with the prefix cache. It is slower than a
`Decoder`: its layers are transformers' own, a few hundred small calls each step.

What the engine's attention cannot do (biases of position, sinks, attention that is not causal,
layers with a state of another kind) is refused at start, by `generic_probe`."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from engine.errors import ModelLoadError, UnsupportedModelError
from engine.models.config import choose_max_model_len, read_eos_token_ids, read_json
from engine.models.families import SUPPORTED

if TYPE_CHECKING:
    from engine.kernels.attention import Attention

NAME = "lectern_paged"
_NO_REGISTRY = "its attention does not go through transformers' registry"
INSTALL = "pip install 'lectern[generic]'"


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """How one layer attends: its place in the cache, and the keywords for `Attention.attend`."""

    layer: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None

    def keywords(self) -> dict[str, Any]:
        """Without those that ask for nothing."""
        keywords: dict[str, Any] = {"scale": self.scale, "window": self.window}
        return keywords if self.soft_cap is None else {**keywords, "soft_cap": self.soft_cap}


@dataclass(frozen=True, slots=True)
class GenericConfig:
    """The sizes that the cache and the limits follow from; found by a probe of the model."""

    architecture: str
    vocab_size: int
    num_layers: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    eos_token_ids: tuple[int, ...]

    def max_model_len(self, requested: int | None) -> int:
        """Prompt and answer together: as requested, else the model's window, at most 8192.
        Raises ModelLoadError for more than the model has positions."""
        return choose_max_model_len(requested, self.max_position_embeddings)


@dataclass(frozen=True, slots=True)
class Step:
    """What the registered function needs of the step that runs: the cache's attention, and the
    form of each layer by its module."""

    attention: Attention
    forms: Mapping[nn.Module, AttentionForm]


current_step: ContextVar[Step] = ContextVar("current_step")


class GenericModel:
    """Implements `CausalModel` around a model of transformers. One thread runs it at a time."""

    is_plain = False

    def __init__(self, model: Any, forms: Mapping[nn.Module, AttentionForm]) -> None:
        """`model` is a causal language model that attends by `NAME`; it is taken over: its body's
        pass is put aside, so that its head can be run alone."""
        body = model.get_decoder()
        self._model = model
        self._forms = forms
        self._run_body = body.forward
        self._given: Tensor | None = None
        body.forward = lambda *_args, **_kwargs: _BodyOutput(self._given)
        self.dtype: torch.dtype = body.dtype
        self.device: torch.device = body.device

    def forward(self, input_ids: Tensor, positions: Tensor, attention: Attention) -> Tensor:
        """Hidden states [T, hidden] for T tokens of all sequences, flat one after the other."""
        token = current_step.set(Step(attention, self._forms))
        try:
            result = self._run_body(
                input_ids=input_ids[None], position_ids=positions[None], use_cache=False
            )
        finally:
            current_step.reset(token)
        hidden: Tensor = result.last_hidden_state[0]
        return hidden

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Logits [N, vocab] in float32 of N rows of `hidden`: the model's own head, with whatever
        scale or cap it has."""
        self._given = hidden[None]
        ids = torch.zeros((1, hidden.shape[0]), dtype=torch.int64, device=hidden.device)
        try:
            logits: Tensor = self._model(input_ids=ids, use_cache=False).logits[0]
        finally:
            self._given = None
        return logits.float()


class _BodyOutput:
    """What a body returns, of any kind of model: hidden states, and nothing else."""

    def __init__(self, hidden: Tensor | None) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int) -> Tensor | None:
        return self.last_hidden_state if index == 0 else None

    def __getattr__(self, _name: str) -> None:
        return None


def load_generic(
    folder: Path, *, dtype: torch.dtype, device: torch.device
) -> tuple[GenericConfig, GenericModel]:
    """The model of a folder whose architecture is none of the engine's own.

    Raises UnsupportedModelError where transformers is not installed, does not know it, or has it
    attend in a way that the engine cannot; ModelLoadError for files that do not fit."""
    from engine.models.generic_probe import probe

    config_json = read_json(folder / "config.json")
    architecture = str((config_json.get("architectures") or ["?"])[0])
    transformers = _import_transformers(architecture)
    _register(transformers)
    model = _load(transformers, folder, architecture, dtype).to(device).eval()
    found = probe(model, architecture)
    generation = folder / "generation_config.json"
    config = GenericConfig(
        architecture=architecture,
        vocab_size=found.vocab_size,
        num_layers=len(found.forms),
        num_kv_heads=found.num_kv_heads,
        head_dim=found.head_dim,
        max_position_embeddings=_num_positions(model.config.get_text_config(), architecture),
        eos_token_ids=read_eos_token_ids(
            config_json, read_json(generation) if generation.exists() else None
        ),
    )
    return config, found.model


def _import_transformers(architecture: str) -> ModuleType:
    try:
        import transformers
    except ImportError as error:
        raise UnsupportedModelError(
            f"The architecture {architecture!r} is not supported by the engine itself; supported "
            f"are: {SUPPORTED}. Many others can be served more slowly with "
            f"transformers: {INSTALL}."
        ) from error
    return transformers


def _register(transformers: ModuleType) -> None:
    from transformers.masking_utils import AttentionMaskInterface

    from engine.models.generic_probe import describe_mask

    transformers.AttentionInterface.register(NAME, _attend)
    AttentionMaskInterface.register(NAME, describe_mask)


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, _mask: object, **_kwargs: Any
) -> tuple[Tensor, None]:
    """The registered function. Query [1, heads, T, D], key and value [1, kv heads, T, D]; returns
    [1, T, heads, D]. Everything else it is given was looked at by the probe."""
    step = current_step.get()
    form = step.forms[module]
    q, k, v = (heads[0].transpose(0, 1).contiguous() for heads in (query, key, value))
    out = step.attention.attend(form.layer, q, k, v, **form.keywords())
    return out.view(1, q.shape[0], q.shape[1], v.shape[2]), None


def _load(transformers: ModuleType, folder: Path, architecture: str, dtype: torch.dtype) -> Any:
    transformers.utils.logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        _refuse_by_config(config, architecture)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=NAME,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
        )
    except UnsupportedModelError:
        raise
    except KeyError as error:
        if NAME not in str(error):
            raise
        raise refusal(architecture, _NO_REGISTRY) from error
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        raise refusal(architecture, " ".join(str(error).split())[:300]) from error
    if not model._can_set_attn_implementation():
        raise refusal(architecture, _NO_REGISTRY)
    for kind in ("missing_keys", "mismatched_keys"):
        if info[kind]:
            raise ModelLoadError(f"{folder}: {kind.replace('_', ' ')}: {sorted(info[kind])[:4]}.")
    return model


def _refuse_by_config(config: Any, architecture: str) -> None:
    """What can be told before weights are read."""
    if getattr(config, "is_encoder_decoder", False):
        raise refusal(architecture, "it has an encoder")
    if getattr(config, "quantization_config", None):
        raise refusal(architecture, "its weights are quantized")
    ropes = getattr(config.get_text_config(), "rope_parameters", None) or {}
    for rope in (ropes, *(value for value in ropes.values() if isinstance(value, Mapping))):
        if rope.get("rope_type") in ("dynamic", "longrope"):
            raise refusal(
                architecture,
                f"its rope type {rope['rope_type']!r} changes the angles of what lies in the cache",
            )


def refusal(architecture: str, reason: str) -> UnsupportedModelError:
    """The error that says why a model cannot be served by way of transformers."""
    return UnsupportedModelError(
        f"The architecture {architecture!r} is not supported by the engine itself "
        f"({SUPPORTED} are), nor by way of transformers: {reason}."
    )


def _num_positions(config: Any, architecture: str) -> int:
    for name in ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    raise refusal(architecture, "its configuration does not say how many positions it has")
