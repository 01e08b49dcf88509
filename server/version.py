"""The version of the package, which a checkout that is not installed has too."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
