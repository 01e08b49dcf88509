"""`create_page_routes`: the pages, their static files and security headers.

| address | page |
| --- | --- |
| `/`, `/c/{id}` | the chat, on a conversation |
| `/teach`, `/teach/{course}`, `/teach/{course}/{tab}` | a teacher's courses, and one of them |
| `/account` | one's own account and data |
| `/login`, `/join`, `/join/{code}`, `/start/{token}` | the door: accounts, courses, links |

No page holds anything private: what it shows comes over the API, which knows the session.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from server.app.api_replies import Endpoint
from server.app.static_files import StaticTree
from server.service.errors import UnauthorizedError

WEB_ROOT = Path(__file__).resolve().parents[2] / "web"
LANGUAGES = {"en": "en", "zh": "zh-CN"}
"""Languages of the page and the value of the `lang` attribute for each."""
THEMES = ("light", "dark")
LANGUAGE_COOKIE = "lectern_lang"
THEME_COOKIE = "lectern_theme"

TABS = ("materials", "people", "try", "log", "settings")
"""Parts of a course's page for its teacher."""

_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?")
_IMPORT = re.compile(r'^(?:import|export)\b(?:[^"\';]*\bfrom)?\s*"(\.[^"]+)"', re.MULTILINE)
"""A static import of a module of ours. `import()` is none: what it names is loaded on demand."""
_CONVERSATION_ID = re.compile(r"[A-Za-z0-9_\-]{1,64}")
_LANGUAGE_RANGE = re.compile(r"\s*([A-Za-z]{1,8}|\*)(?:-[A-Za-z0-9\-]+)?\s*(?:;\s*q=([0-9.]+))?")


StartSession = Callable[[Request, Response], None]
"""Gives the response the session cookie if the request has no valid one; raises UnauthorizedError
if the reader must log in first."""


def content_security_policy(host: str | None) -> str:
    """The page's policy. `host` (of the Host header) is named for WebSockets, because not every
    browser counts them under 'self'; a host that is not plainly one is left out."""
    connect = "'self'"
    if host is not None and _HOST.fullmatch(host):
        connect += f" ws://{host} wss://{host}"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "font-src 'self'",
            f"connect-src {connect}",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types dompurify",
        )
    )


def security_headers(host: str | None) -> dict[str, str]:
    """Headers of every page."""
    return {
        "Content-Security-Policy": content_security_policy(host),
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }


def choose_language(request: Request) -> str:
    """The reader's choice (cookie), else the first language of the browser that the page has,
    else English."""
    chosen = request.cookies.get(LANGUAGE_COOKIE)
    if chosen in LANGUAGES:
        return chosen
    ranges: list[tuple[float, int, str]] = []
    for order, part in enumerate(request.headers.get("accept-language", "").split(",")[:20]):
        if match := _LANGUAGE_RANGE.fullmatch(part):
            ranges.append((-_quality(match[2]), order, match[1].lower()))
    return next((name for _, _, name in sorted(ranges) if name in LANGUAGES), "en")


def load_catalogue(language: str, root: Path = WEB_ROOT, part: str = "") -> dict[str, str]:
    """A page's strings in one language: the same file that the browser reads. `part` is "teach"
    or "entry" for what these pages have besides the common strings."""
    name = f"{part}.{language}.json" if part else f"{language}.json"
    catalogue: dict[str, str] = json.loads((root / "static/js/i18n" / name).read_text("utf-8"))
    return catalogue


def imported_modules(root: Path, entry: str) -> list[str]:
    """The modules that `entry` needs before it runs, directly or through others, by their paths
    below `root`: a page that names them all has them loaded at once, not one level after another.
    What a module imports on demand is not among them."""
    found: dict[str, None] = {}
    waiting = [entry]
    while waiting:
        path = root / waiting.pop()
        for address in _IMPORT.findall(path.read_text("utf-8")):
            module = (path.parent / address).resolve().relative_to(root.resolve()).as_posix()
            if module not in found and module != entry:
                found[module] = None
                # Other people's libraries are one file each.
                if not module.startswith("vendor/"):
                    waiting.append(module)
    return sorted(found)


class Pages:
    """Templates, catalogues and static files, read once at start. `start_session` is called on
    each response of the chat and of the teacher's pages. Loop thread."""

    def __init__(self, start_session: StartSession, root: Path = WEB_ROOT) -> None:
        self.static = StaticTree.load(root / "static")
        self._start_session = start_session
        common = {language: load_catalogue(language, root) for language in LANGUAGES}
        self._catalogues = {
            part: {
                language: strings | (load_catalogue(language, root, part) if part else {})
                for language, strings in common.items()
            }
            for part in ("", "teach", "entry")
        }
        self._environment = Environment(
            loader=FileSystemLoader(root / "templates"),
            autoescape=select_autoescape(("html",)),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals["static"] = self.static.url
        self._environment.globals["version"] = self.static.version
        self._modules = imported_modules(root / "static", "js/main.js")

    async def chat(self, request: Request) -> Response:
        """`/` and `/c/{conversation}`."""
        conversation = request.path_params.get("conversation", "")
        if conversation and not _CONVERSATION_ID.fullmatch(conversation):
            return RedirectResponse("/", status_code=303)
        page = self._page(
            request, "chat.html", "", conversation=conversation, modules=self._modules
        )
        return self._with_session(request, page)

    async def teach(self, request: Request) -> Response:
        """`/teach`, `/teach/{course}` and `/teach/{course}/{tab}`."""
        course = request.path_params.get("course", "")
        tab = request.path_params.get("tab", TABS[0])
        if tab not in TABS:
            return RedirectResponse(f"/teach/{quote(course, safe='')}", status_code=303)
        page = self._page(request, "teach.html", "teach", course=course, tab=tab, tabs=TABS)
        return self._with_session(request, page)

    async def entry(self, request: Request) -> Response:
        """`/login`, `/join`, `/join/{code}` and `/start/{token}`, which need no session. Codes
        and tokens stay out of what other addresses are told."""
        kind = request.url.path.split("/")[1]
        word = request.path_params.get("word", "")
        page = self._page(request, "entry.html", "entry", kind=kind, word=word)
        page.headers["Referrer-Policy"] = "no-referrer"
        page.headers["Cache-Control"] = "no-store"
        return page

    async def account(self, request: Request) -> Response:
        """`/account`: one's own account and data."""
        page = self._page(request, "entry.html", "entry", kind="account", word="")
        return self._with_session(request, page)

    async def static_file(self, request: Request) -> Response:
        """`/static/…`."""
        return self.static.response(request, request.path_params["path"])

    async def favicon(self, request: Request) -> Response:
        """`/favicon.ico`, which browsers ask for without being told to."""
        return self.static.response(request, "icons/lectern.svg")

    def _page(self, request: Request, template: str, part: str, **values: Any) -> Response:
        language = choose_language(request)
        theme = request.cookies.get(THEME_COOKIE)
        html = self._environment.get_template(template).render(
            language=language,
            lang=LANGUAGES[language],
            theme=theme if theme in THEMES else "",
            part=part,
            t=_translator(self._catalogues[part][language]),
            **values,
        )
        headers = security_headers(request.headers.get("host"))
        headers["Cache-Control"] = "no-cache, private"
        headers["Vary"] = "Cookie, Accept-Language, Accept-Encoding"
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return HTMLResponse(html, headers=headers)
        # The page names some eighty modules. It holds no secret that its length could tell.
        headers["Content-Encoding"] = "gzip"
        return HTMLResponse(gzip.compress(html.encode(), 6, mtime=0), headers=headers)

    def _with_session(self, request: Request, page: Response) -> Response:
        """The page with its session cookie, or the way to the login."""
        try:
            self._start_session(request, page)
        except UnauthorizedError:
            query = f"?{request.url.query}" if request.url.query else ""
            back = quote(request.url.path + query, safe="")
            headers = {"Cache-Control": "no-store"}
            return RedirectResponse(f"/login?next={back}", status_code=303, headers=headers)
        return page


def create_page_routes(pages: Pages) -> list[BaseRoute]:
    """Routes of the pages."""
    served: list[tuple[str, Endpoint]] = [
        ("/", pages.chat),
        ("/c/{conversation}", pages.chat),
        ("/teach", pages.teach),
        ("/teach/{course}", pages.teach),
        ("/teach/{course}/{tab}", pages.teach),
        ("/account", pages.account),
        ("/login", pages.entry),
        ("/join", pages.entry),
        ("/join/{word}", pages.entry),
        ("/start/{word}", pages.entry),
        ("/static/{path:path}", pages.static_file),
        ("/favicon.ico", pages.favicon),
    ]
    return [Route(path, endpoint, methods=["GET"]) for path, endpoint in served]


def _translator(catalogue: Mapping[str, str]) -> Callable[[str], str]:
    def translate(key: str) -> str:
        return catalogue[key]

    return translate


def _quality(text: str | None) -> float:
    if text is None:
        return 1.0
    try:
        return float(text)
    except ValueError:
        return 0.0
