"""As `steady_server`, with answers of ten seconds: what is to happen in mid-answer does, on a slow
machine, too."""

from __future__ import annotations

import sys

from server.__main__ import main
from tests.e2e.steady_server import steady

if __name__ == "__main__":
    sys.exit(main(make_engine=steady(200)))
