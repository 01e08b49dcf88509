"""The retriever as the configuration wants it: by words, with the model as a judge, and by meaning
where a model is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from server.app.embeddings import CrossReranker, PassageVectors, SentenceEmbedder
from server.app.judging import PassageJudge
from server.app.retrieval import DEFAULT_NOT_FOUND_SCORE, Retriever
from server.config import ServerConfig
from server.service.likelihood import Likelihood
from server.store.database import Database

Model = TypeVar("Model")


class RetrievalModelError(Exception):
    """A model for retrieval cannot be used; the message says why, for the operator."""


def make_vectors(config: ServerConfig, database: Database) -> PassageVectors | None:
    """Search by meaning, where an embedding model is configured. Takes seconds: the model is
    loaded. Raises RetrievalModelError."""
    if config.embedding_model is None:
        return None
    embedder = _loaded(SentenceEmbedder, config.embedding_model, "--embedding-model")
    return PassageVectors(database, embedder, weight=config.embedding_weight)


def make_retriever(
    config: ServerConfig,
    database: Database,
    vectors: PassageVectors | None,
    likelihood: Likelihood,
) -> Retriever:
    """The retriever. Raises RetrievalModelError."""
    judge, reranker = None, None
    if config.asks_judge:
        judge = PassageJudge(likelihood, max_tokens=config.judge_tokens, time_s=config.judge_time_s)
    if config.reranker_model is not None:
        reranker = _loaded(CrossReranker, config.reranker_model, "--reranker-model")
    threshold = config.not_found_score
    return Retriever(
        database,
        not_found_score=DEFAULT_NOT_FOUND_SCORE if threshold is None else threshold,
        judge=judge,
        num_judged=config.judge_passages,
        semantic=vectors,
        reranker=reranker,
    )


def _loaded(load: Callable[[Path], Model], folder: Path, option: str) -> Model:
    if not folder.is_dir():
        raise RetrievalModelError(f"{option}: {folder} is not a folder.")
    try:
        return load(folder)
    except ModuleNotFoundError as error:
        raise RetrievalModelError(
            f"{option} needs the extra 'embeddings', which is not installed ({error.name} is "
            "missing)."
        ) from error
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise RetrievalModelError(f"{option}: {folder} holds no such model: {error}") from error
