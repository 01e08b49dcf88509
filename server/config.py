"""`ServerConfig`: every choice a person can make at start, declared once.

A field is at the same time a command line option (`--max-num-seqs`), an environment variable
(`LECTERN_MAX_NUM_SEQS`), a line of `--help` and a row of the README's table. The command line
wins over the environment, the environment over the default. Nothing changes after start.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.api import DeviceType, EngineConfig, InvalidRequestError
from server.service.key_store import FILE_NAME as KEY_FILE_NAME
from server.service.origin import OriginPolicy, is_loopback

ENV_PREFIX = "LECTERN_"
DEFAULT_MODEL = "qwen2.5-coder-0.5b-instruct"


def default_data_dir() -> Path:
    """`$XDG_DATA_HOME/lectern`, so that a second checkout finds the weights again."""
    base = os.environ.get("XDG_DATA_HOME", "")
    # The XDG rules say that a relative value counts as unset.
    root = Path(base) if base.startswith("/") else Path("~/.local/share")
    return root / "lectern"


class ServerConfig(BaseModel):
    """Frozen. Raises pydantic's ValidationError for a value out of its range;
    `command_line.load_config` turns that into a ConfigError for people."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    # Where it listens.
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port; 0 takes a free one.")
    insecure: bool = Field(
        False,
        description="Let everybody in who reaches the address: visitors are guests, and where "
        "there are no API keys, programs need none.",
    )
    allowed_hosts: str = Field(
        "",
        description="Names, separated by commas, under which the server is also reached, for "
        "example through a proxy: a browser that asks for another one is refused.",
    )
    cors_origins: str = Field(
        "",
        description="Origins of other sites, separated by commas, whose pages may use the "
        "API; * for all.",
    )

    # Who may use the API.
    api_keys_file: Path | None = Field(
        None,
        description="File of API keys, made by scripts/keys. With one, /v1 and /metrics need a "
        "key, and so does the page where other machines reach it. If not given: api-keys.json in "
        "the data folder, once it exists.",
    )

    # The model and the engine.
    model: str = Field(
        DEFAULT_MODEL,
        min_length=1,
        description="Catalogue name, local folder, .gguf file or Hub id (owner/name).",
    )
    load_format: Literal["auto", "safetensors", "gguf", "dummy"] = Field(
        "auto", description="How weights are read; dummy makes random ones from config.json."
    )
    weights: Literal["auto", "float", "q8", "q4"] = Field(
        "auto",
        description="How weights are kept on a CPU: the codes of a quantized GGUF file as they "
        "are (auto), floats, or rounded to 8 or 4 bits.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of weights and cache."
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where the model runs.")
    max_model_len: int | None = Field(
        None,
        ge=1,
        description="Prompt and answer together, in tokens. If not given: the model's window, "
        "at most 8192.",
    )
    kv_cache_tokens: int | None = Field(
        None, ge=1, description="KV cache capacity in tokens. If not given: by the free memory."
    )
    kv_cache_dtype: Literal["auto", "fp8"] = Field(
        "auto", description="Number format of the KV cache; fp8: half the memory, on a GPU."
    )
    quantization: Literal["none", "fp8"] = Field(
        "none", description="fp8: weights are rounded to 8-bit floats at start, on a GPU."
    )
    gpu_memory_utilization: float = Field(
        0.9,
        ge=0.01,
        le=1,
        description="Share of the GPU's memory that model and KV cache may take together.",
    )
    execution: Literal["auto", "torch", "triton"] = Field(
        "auto",
        description="What computes on a GPU: fused kernels where they can serve the model (auto), "
        "torch's own operations, or the fused kernels and nothing else.",
    )
    cuda_graphs: Literal["auto", "off"] = Field(
        "auto", description="off: no CUDA graphs; slower, but starts sooner."
    )
    block_size: int | None = Field(
        None,
        ge=1,
        le=256,
        description="Tokens per KV cache block. If not given: 16 on a CPU, 64 on a GPU.",
    )
    max_num_seqs: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="Answers that may run at once. If not given: 32 on a CPU, 256 on a GPU.",
    )
    max_num_batched_tokens: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Token budget of one engine step. If not given: 512 on a CPU, 8192 on a GPU.",
    )
    max_queued_requests: int = Field(
        256,
        ge=0,
        le=1_000_000,
        description="Requests beyond max_num_seqs, running and waiting counted together; more are "
        "refused at once.",
    )
    step_time_target_s: float | None = Field(
        None,
        ge=0.001,
        le=60,
        description="Prefill is cut so that a step stays near this time. If not given: 0.25 on a "
        "CPU, 0.05 on a GPU.",
    )
    prefill_step_time_target_s: float | None = Field(
        None,
        ge=0.001,
        le=60,
        description="The same while nothing decodes. If not given: 1 on a CPU, 0.25 on a GPU.",
    )
    enable_prefix_cache: bool = Field(True, description="Reuse the KV cache of equal prefixes.")
    speculation: Literal["auto", "off"] = Field(
        "auto",
        description="auto: on a CPU, guess tokens from the text so far where that is faster. "
        "Changes no answer.",
    )
    max_draft_tokens: int = Field(
        8, ge=1, le=64, description="Guessed tokens that one step checks for an answer."
    )
    speculation_max_batch: int = Field(
        4, ge=1, le=4096, description="Nothing is guessed while more answers than these run."
    )
    num_threads: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="CPU threads. If not given: the physical cores.",
    )
    tokenizer_threads: int = Field(
        2, ge=1, le=64, description="Threads for templates and tokenizing."
    )
    scripted: bool = Field(
        False, description="Answer from a script instead of a model: for tests and demos."
    )
    scripted_token_s: float = Field(
        0.02, ge=0, le=10, description="Time that a scripted token takes, in seconds."
    )

    # What is kept, and where.
    data_dir: Path = Field(
        default_data_dir(), description="Folder for weights, converted copies and the database."
    )
    database_url: str | None = Field(
        None, repr=False, description="SQLAlchemy URL. If not given: SQLite in the data folder."
    )
    secret: str | None = Field(
        None,
        min_length=16,
        repr=False,
        description="Key that signs session cookies. If not given: one is made and kept in the "
        "data folder.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line that is written."
    )

    # Limits of the service.
    drain_timeout_s: float = Field(
        8.0, ge=0, le=3600, description="Time for running answers at shutdown, in seconds."
    )
    request_timeout_s: float = Field(
        600.0, ge=1, le=86_400, description="Longest life of one request, in seconds."
    )
    body_timeout_s: float = Field(
        60.0,
        ge=0.1,
        le=3600,
        description="Time for the body of a request, in seconds; in pages and uploads, for each "
        "part of it.",
    )
    send_timeout_s: float = Field(
        20.0, ge=0.1, le=3600, description="A client that takes nothing for so long is slow."
    )
    heartbeat_s: float = Field(
        10.0, ge=0.1, le=3600, description="Pause after which a silent stream gets a heartbeat."
    )
    max_body_bytes: int = Field(
        2 * 1024 * 1024, ge=1024, le=1 << 30, description="Largest HTTP body."
    )
    max_message_bytes: int = Field(
        1024 * 1024, ge=1024, le=1 << 30, description="Largest WebSocket message."
    )
    max_runs_per_connection: int = Field(
        16, ge=1, le=10_000, description="Answers that one WebSocket may run at once."
    )
    run_log_ttl_s: float = Field(
        600.0, ge=0, le=86_400, description="How long an ended answer's events stay in memory."
    )
    run_log_max_events: int = Field(
        4096, ge=16, le=1_000_000, description="Events kept per answer; older ones merge."
    )

    max_runs_per_user: int = Field(
        32, ge=1, le=100_000, description="Answers that one user may run at once on the page."
    )
    max_concurrent_per_user: int = Field(
        512, ge=1, le=1_000_000, description="Answers that one caller of the API may run at once."
    )
    tokens_per_minute_per_user: int | None = Field(
        None,
        ge=1,
        description="Prompt and answer tokens that one user may take in a minute. If not given: "
        "any number.",
    )
    max_connections: int = Field(1024, ge=1, le=1_000_000, description="Open WebSockets.")
    max_connections_per_user: int = Field(
        64, ge=1, le=1_000_000, description="Open WebSockets of one user."
    )
    max_messages_per_s: float = Field(
        50.0,
        ge=0.1,
        le=100_000,
        description="Messages that one WebSocket may send in a second, on average.",
    )
    abandon_grace_s: float = Field(
        5.0,
        ge=0,
        le=3600,
        description="How long an answer that its reader does not want to outlive it goes on "
        "without one.",
    )
    reasoning: Literal["auto", "off"] = Field(
        "auto",
        description="auto: what a model thinks between its markers is told apart from its answer.",
    )

    # What tokens cost; told in replies and metrics where all three are given.
    price_input_hit: float | None = Field(
        None,
        ge=0,
        le=1e6,
        description="Price of a million prompt tokens that the prefix cache had.",
    )
    price_input_miss: float | None = Field(
        None, ge=0, le=1e6, description="Price of a million prompt tokens that were computed."
    )
    price_output: float | None = Field(
        None, ge=0, le=1e6, description="Price of a million sampled tokens."
    )
    price_currency: str = Field(
        "USD", pattern="^[A-Z]{3}$", description="Currency of the prices, three letters."
    )

    # What operators see.
    log_format: Literal["text", "json"] = Field(
        "text", description="Log lines for people, or one JSON object a line."
    )
    otlp_endpoint: str | None = Field(
        None,
        description="Address of an OpenTelemetry collector (OTLP over HTTP) that gets a trace of "
        "each request. Needs the extra 'tracing'.",
    )

    # The course application.
    default_max_tokens: int = Field(
        512, ge=1, le=1_000_000, description="Length limit of an answer on the page, in tokens."
    )
    num_passages: int = Field(3, ge=0, le=100, description="Passages that a question looks up.")
    not_found_score: float | None = Field(
        None,
        ge=0,
        description="Retrieval score under which the answer is 'not found in the materials'. "
        "If not given: what suits the built-in retrieval.",
    )
    login: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether the page asks for an account. auto: where other machines come in; "
        "without, every visitor is a guest of the open courses.",
    )
    public_url: str | None = Field(
        None,
        description="Address under which people reach the page, for links to it. If not given: "
        "the one that the server listens on.",
    )
    retention_days: int | None = Field(
        None,
        ge=1,
        le=36_500,
        description="Conversations that nobody has used for so many days are deleted, where the "
        "course says nothing else. If not given: kept.",
    )

    # Materials.
    max_upload_bytes: int = Field(
        256 * 1024 * 1024,
        ge=1024,
        le=1 << 40,
        description="Largest upload, all its files together.",
    )
    max_upload_files: int = Field(
        500, ge=1, le=10_000, description="Files in one upload, or in one zip of it."
    )
    max_material_bytes: int = Field(
        64 * 1024 * 1024, ge=1024, le=1 << 32, description="Largest file of a course."
    )
    max_material_pages: int = Field(
        3000, ge=1, le=100_000, description="Pages or slides that a file may have."
    )
    material_workers: int = Field(
        1, ge=1, le=64, description="Files that are parsed at once, each in a process of its own."
    )
    material_memory_mb: int = Field(
        768, ge=256, le=65_536, description="Memory that parsing one file may take, in MiB."
    )
    material_time_s: float = Field(
        120.0, ge=1, le=3600, description="Time that parsing one file may take, in seconds."
    )
    passage_tokens_least: int = Field(
        150, ge=1, le=4096, description="Sections with fewer tokens share a passage."
    )
    passage_tokens_most: int = Field(
        400, ge=16, le=8192, description="Longest passage that is not cut, in tokens."
    )

    # The model as a judge of passages.
    judge: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether the model helps to order passages that fit a question about equally "
        "well by their words; auto: unless answers are scripted or --reranker-model is given.",
    )
    judge_passages: int = Field(
        8, ge=2, le=32, description="Passages of a question that the model may have to judge."
    )
    judge_tokens: int = Field(
        512,
        ge=32,
        le=8192,
        description="Tokens of a passage by which the model judges it.",
    )
    judge_time_s: float = Field(
        4.0,
        gt=0,
        le=60,
        description="Time that judging may take, in seconds; then the order by words stands.",
    )

    # Searching by meaning.
    embedding_model: Path | None = Field(
        None,
        description="Folder of a sentence-transformers model; searches by meaning too. Needs the "
        "extra 'embeddings'.",
    )
    embedding_weight: float = Field(
        0.35, ge=0, le=1, description="What a place in that search counts, against 1 by words."
    )
    reranker_model: Path | None = Field(
        None,
        description="Folder of a cross-encoder that orders the best passages anew. Needs the "
        "extra 'embeddings'.",
    )

    @model_validator(mode="after")
    def _check_names(self) -> ServerConfig:
        _ = self.origins  # raises what is wrong with a name
        endpoint = self.otlp_endpoint
        if endpoint is not None and not endpoint.startswith(("http://", "https://")):
            raise ValueError(
                f"--otlp-endpoint must be an address such as http://127.0.0.1:4318, not "
                f"{endpoint!r}."
            )
        return self

    @model_validator(mode="after")
    def _check_exposure(self) -> ServerConfig:
        # With accounts the page is for those who have one, and the API is closed without keys.
        if self.is_exposed and not self.has_keys and not self.asks_for_login:
            is_local = is_loopback(self.host)
            option = f"--allowed-hosts {self.allowed_hosts}" if is_local else f"--host {self.host}"
            raise ValueError(
                f"{option} would let other machines in, with --login off and no API keys. Leave "
                "--login off out, make a key with `scripts/keys create NAME`, or add --insecure if "
                "everybody may come in."
            )
        return self

    @model_validator(mode="after")
    def _check_passages(self) -> ServerConfig:
        if self.passage_tokens_least > self.passage_tokens_most:
            raise ValueError("--passage-tokens-least must not be above --passage-tokens-most.")
        return self

    @model_validator(mode="after")
    def _check_prices(self) -> ServerConfig:
        names = ("price_input_hit", "price_input_miss", "price_output")
        missing = [option_name(name) for name in names if getattr(self, name) is None]
        if 0 < len(missing) < len(names):
            raise ValueError(
                f"{' and '.join(missing)} must be given too: all three prices or none."
            )
        return self

    @model_validator(mode="after")
    def _check_step(self) -> ServerConfig:
        # The engine checks this too, but only once the model has been fetched. With `auto` the
        # device is not known yet, and what fits on one of them passes.
        devices: Sequence[DeviceType] = (
            get_args(DeviceType) if self.device == "auto" else (self.device,)
        )
        errors: list[InvalidRequestError] = []
        for device in devices:
            try:
                self.engine_config(Path("unknown")).resolved_for(device)
            except InvalidRequestError as error:
                errors.append(error)
        if len(errors) == len(devices):
            raise ValueError(f"{_with_options(str(errors[0]))}.")
        return self

    @property
    def data_path(self) -> Path:
        """`data_dir`, absolute and with `~` expanded."""
        return self.data_dir.expanduser().absolute()

    @property
    def keys_path(self) -> Path:
        """The file of API keys, which need not exist."""
        if self.api_keys_file is None:
            return self.data_path / KEY_FILE_NAME
        return self.api_keys_file.expanduser().absolute()

    @property
    def has_keys(self) -> bool:
        """API keys are needed from the start: a file was named, or is where it is looked for."""
        return self.api_keys_file is not None or self.keys_path.exists()

    @property
    def is_exposed(self) -> bool:
        """Other machines are meant to reach the server, itself or by a proxy in front of it, and
        not everybody may come in."""
        return not self.insecure and bool(not is_loopback(self.host) or self.allowed_hosts)

    @property
    def asks_for_login(self) -> bool:
        """The page is for people with an account."""
        return self.login == "on" or (self.login == "auto" and self.is_exposed)

    @property
    def asks_judge(self) -> bool:
        """The model helps to order passages."""
        if self.judge != "auto":
            return self.judge == "on"
        has_model = not self.scripted and self.load_format != "dummy"
        return has_model and self.reranker_model is None

    @property
    def materials_dir(self) -> Path:
        """Where the bytes of uploaded files are kept."""
        return self.data_path / "materials"

    @property
    def origins(self) -> OriginPolicy:
        """Which pages may use the server, and under which names."""
        return OriginPolicy.of(
            hosts=_listed(self.allowed_hosts),
            origins=_listed(self.cors_origins),
            is_local=is_loopback(self.host),
        )

    @property
    def models_dir(self) -> Path:
        """Where fetched weights are kept."""
        return self.data_path / "models"

    def engine_config(
        self, model_path: Path, *, served_name: str = "model", is_fallback: bool = False
    ) -> EngineConfig:
        """The engine's share of the choices, for a model that is on the disk."""
        return EngineConfig(
            model=model_path,
            served_name=served_name,
            is_fallback=is_fallback,
            load_format=self.load_format,
            weights=self.weights,
            dtype=self.dtype,
            device=self.device,
            cache_dir=self.data_path / "converted",
            max_model_len=self.max_model_len,
            kv_cache_tokens=self.kv_cache_tokens,
            kv_cache_dtype=self.kv_cache_dtype,
            quantization=self.quantization,
            gpu_memory_utilization=self.gpu_memory_utilization,
            execution=self.execution,
            cuda_graphs=self.cuda_graphs,
            block_size=self.block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_queued_requests=self.max_queued_requests,
            step_time_target_s=self.step_time_target_s,
            prefill_step_time_target_s=self.prefill_step_time_target_s,
            enable_prefix_cache=self.enable_prefix_cache,
            speculation=self.speculation,
            max_draft_tokens=self.max_draft_tokens,
            speculation_max_batch=self.speculation_max_batch,
            num_threads=self.num_threads,
        )


def option_name(field: str) -> str:
    """`max_num_seqs` → `--max-num-seqs`."""
    return "--" + field.replace("_", "-")


def _with_options(text: str) -> str:
    """`text` with options for the fields that it names."""
    fields = ServerConfig.model_fields
    return re.sub(r"\w+", lambda word: option_name(word[0]) if word[0] in fields else word[0], text)


def variable_name(field: str) -> str:
    """`max_num_seqs` → `LECTERN_MAX_NUM_SEQS`."""
    return ENV_PREFIX + field.upper()


def _listed(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part for part in (part.strip() for part in text.split(",")) if part]
