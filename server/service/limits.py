"""The service's own limits: frozen, filled from the server's configuration."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api import SamplingParams

_MAY_BE_ZERO = frozenset({"run_log_ttl_s", "drain_timeout_s", "abandon_grace_s"})


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Sizes in bytes, times in seconds; all greater than 0, but `_MAY_BE_ZERO`. Raises
    ValueError, naming the field."""

    max_body_bytes: int = 2 << 20
    max_message_bytes: int = 1 << 20
    """One WebSocket message; the WebSocket protocol below the service holds it."""
    max_runs_per_connection: int = 16
    max_runs_per_user: int = 32
    """Answers that one user may have running, over all connections and without one."""
    max_resumes: int = 64
    """Runs that one `hello` may name in `resume`."""
    max_waiting_messages: int = 32
    """Messages to the application that may wait for it, of one WebSocket and of one kind."""
    max_outbox_messages: int = 256
    """Replies outside runs that may wait for a WebSocket client that does not read."""
    max_choices: int = 8
    """`n`: answers to one prompt."""
    max_prompts: int = 64
    """Prompts in one completions request."""
    max_sequences_per_request: int = 64
    """Answers that one completions request may ask for: prompts times `n`."""
    max_stops: int = 16
    """Strings in `stop`, and ids in `stop_token_ids`."""
    max_stop_chars: int = 1000
    max_logit_biases: int = SamplingParams.MAX_LOGIT_BIASES
    """Tokens that one `logit_bias` may name."""
    completions_max_tokens: int = 16
    """`max_tokens` of a raw completion that names none, as in OpenAI's reference."""
    run_log_ttl_s: float = 600.0
    run_log_max_events: int = 4096
    max_kept_runs: int = 10_000
    max_kept_bytes: int = 64 << 20
    """What the logs of ended runs may take together; the oldest go first."""
    max_connections: int = 1024
    """Open WebSockets."""
    max_connections_per_user: int = 64
    max_messages_per_s: float = 50.0
    """Of one WebSocket, on average; a burst may be twice as large."""
    max_concurrent_per_user: int = 512
    """Answers of one account that may run or wait at once."""
    tokens_per_minute_per_user: int | None = None
    """Prompt and sampled tokens of one account; None: any number."""
    abandon_grace_s: float = 5.0
    """How long a run that is not to outlive its readers goes on without one."""
    heartbeat_s: float = 10.0
    send_timeout_s: float = 20.0
    body_timeout_s: float = 60.0
    """Of a whole body; of one that the rest of the site reads, between two parts of it."""
    request_timeout_s: float = 600.0
    hello_timeout_s: float = 10.0
    drain_timeout_s: float = 8.0
    tokenizer_threads: int = 2

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if value is None:
                continue
            if name in _MAY_BE_ZERO:
                if not value >= 0:
                    raise ValueError(f"{name} must be at least 0, not {value}")
            elif not value > 0:
                raise ValueError(f"{name} must be greater than 0, not {value}")
