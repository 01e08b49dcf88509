"""Imports are kept while they last, and for an hour."""

from __future__ import annotations

import pytest

from server.app.materials import import_jobs
from server.app.materials.errors import MaterialError
from server.app.materials.import_jobs import ImportedFile, ImportJobs


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_job_counts_what_is_over() -> None:
    files = [ImportedFile("a.md"), ImportedFile("b.md"), ImportedFile("c.md")]
    job = ImportJobs().open("course", files)
    assert (job.num_over, job.is_over) == (0, False)
    files[0].end("ready")
    files[1].fail(MaterialError("no_text", name="b.md"))
    assert (job.num_over, job.is_over) == (2, False)
    files[2].end("duplicate")
    assert job.is_over
    assert [file.state for file in job.files] == ["ready", "failed", "duplicate"]


def test_a_job_is_kept_for_an_hour_after_its_end() -> None:
    clock = Clock()
    jobs = ImportJobs(clock)
    file = ImportedFile("a.md")
    job = jobs.open("course", [file])
    clock.now = 100_000.0
    assert jobs.get(job.id) is job
    file.end("ready")
    assert jobs.get(job.id) is job  # its end is seen now
    clock.now += 3600.0
    assert jobs.get(job.id) is job
    clock.now += 1.0
    assert jobs.get(job.id) is None


def test_many_jobs_that_ended_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_jobs, "_MAX_KEPT", 10)
    jobs = ImportJobs(Clock())
    running = jobs.open("course", [ImportedFile("a.md")])
    for _ in range(30):
        file = ImportedFile("b.md")
        file.end("ready")
        jobs.open("course", [file])
    assert jobs.get(running.id) is running
    assert len(jobs._kept) <= 11
