"""schemathesis holds a real server against its own /openapi.json: whatever is sent, the status, the
content type, the headers and the body (each event of a stream, too) are among those described."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.server_process import ServerProcess

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "negative_data_rejection",
)
PHASES = ("examples", "coverage", "fuzzing")
CONFIG = """
[checks]
negative_data_rejection.expected-statuses = [400, 401, 403, 404, 405, 410, 413]
"""
"""410: a run that is not known is told before what is wrong beside it."""


@pytest.mark.client
@pytest.mark.timeout(240)
def test_whatever_is_sent_the_server_keeps_to_its_document(tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    with ServerProcess(tmp_path / "data", "--scripted", "--scripted-token-s", "0") as server:
        document = f"{server.address}/openapi.json"
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", document),
                *("--phases", ",".join(PHASES)),
                *("--checks", ",".join(CHECKS)),
                *("--max-examples", "15", "--seed", "5"),
                *("--request-timeout", "10"),
                "--continue-on-failure",
            ],
            check=False,
            cwd=tmp_path,
            env={**os.environ, "NO_PROXY": "*", "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=200,
        )
        with urllib.request.urlopen(document, timeout=10) as reply:
            paths = json.load(reply)["paths"]
        with urllib.request.urlopen(f"{server.address}/ready", timeout=10) as reply:
            assert json.load(reply)["ready"] is True
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    found = re.search(r"Tested: (\d+)", ran.stdout)
    assert found is not None, ran.stdout
    # All but the document's own address, which it leaves out.
    assert int(found[1]) == sum(len(path) for path in paths.values()) - 1
    assert "Traceback" not in server.text
