from __future__ import annotations

import json

from scripts.machine_facts import machine_facts, read_cpuinfo

TWO_CORES_FOUR_THREADS = "\n\n".join(
    f"processor\t: {n}\nmodel name\t: A CPU\nphysical id\t: 0\ncore id\t\t: {n % 2}\n"
    "flags\t\t: fpu avx2 amx_int8"
    for n in range(4)
)


def test_threads_of_one_core_count_once() -> None:
    facts = read_cpuinfo(TWO_CORES_FOUR_THREADS)
    assert facts == {
        "model": "A CPU",
        "flags": {"fpu", "avx2", "amx_int8"},
        "physical_cores": 2,
    }


def test_other_systems_tell_nothing() -> None:
    assert read_cpuinfo("") == {"model": "", "flags": set(), "physical_cores": 0}


def test_facts_are_ready_for_json() -> None:
    facts = json.loads(json.dumps(machine_facts(["pytest", "no-such-package"])))
    assert facts["physical_cores"] >= 1
    assert facts["pytest"]
    assert facts["no-such-package"] is None
