from __future__ import annotations

import subprocess
import sys

import pytest

from server.service.ids import new_hex


@pytest.mark.parametrize("num_bytes", [1, 8, 12])
def test_so_many_bytes_in_hex(num_bytes: int) -> None:
    assert len(new_hex(num_bytes)) == 2 * num_bytes
    assert len(bytes.fromhex(new_hex(num_bytes))) == num_bytes


def test_no_two_are_alike_in_one_process_or_in_two() -> None:
    here = {new_hex(8) for _ in range(1000)}
    assert len(here) == 1000
    program = "from server.service.ids import new_hex; print(new_hex(8))"
    said = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert len(here | {one.stdout.strip() for one in said}) == 1002
