"""`create_page_routes`: the chat page (`/`, `/c/{id}`), its static files and security headers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from server.app.static_files import StaticTree
from server.service.errors import UnauthorizedError

WEB_ROOT = Path(__file__).resolve().parents[2] / "web"
LANGUAGES = {"en": "en", "zh": "zh-CN"}
"""Languages of the page and the value of the `lang` attribute for each."""
THEMES = ("light", "dark")
LANGUAGE_COOKIE = "lectern_lang"
THEME_COOKIE = "lectern_theme"

_LOGIN = 'Basic realm="Lectern (password: an API key)", charset="UTF-8"'
"""How a browser asks its reader for a key."""
_HOST = re.compile(r"[A-Za-z0-9.\-]+(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?")
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


def load_catalogue(language: str, root: Path = WEB_ROOT) -> dict[str, str]:
    """The page's strings in one language: the same file that the browser reads."""
    path = root / "static" / "js" / "i18n" / f"{language}.json"
    catalogue: dict[str, str] = json.loads(path.read_text("utf-8"))
    return catalogue


class Pages:
    """The chat page: template, catalogues and static files, read once at start. Loop thread."""

    def __init__(self, start_session: StartSession, root: Path = WEB_ROOT) -> None:
        self.static = StaticTree.load(root / "static")
        self._start_session = start_session
        self._catalogues = {language: load_catalogue(language, root) for language in LANGUAGES}
        environment = Environment(
            loader=FileSystemLoader(root / "templates"),
            autoescape=select_autoescape(("html",)),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals["static"] = self.static.url
        self._template = environment.get_template("chat.html")
        self._modules = [
            path
            for path in self.static.paths()
            if path.startswith("js/") and path.endswith(".js") and path != "js/main.js"
        ]

    async def chat(self, request: Request) -> Response:
        """`/` and `/c/{conversation}`. The page itself holds nothing private: what it shows
        comes over the API, which knows the session."""
        conversation = request.path_params.get("conversation", "")
        if conversation and not _CONVERSATION_ID.fullmatch(conversation):
            return RedirectResponse("/", status_code=303)
        language = choose_language(request)
        theme = request.cookies.get(THEME_COOKIE)
        html = self._template.render(
            language=language,
            lang=LANGUAGES[language],
            theme=theme if theme in THEMES else "",
            conversation=conversation,
            modules=self._modules,
            t=_translator(self._catalogues[language]),
        )
        headers = security_headers(request.headers.get("host"))
        headers["Cache-Control"] = "no-cache, private"
        headers["Vary"] = "Cookie, Accept-Language"
        response = HTMLResponse(html, headers=headers)
        try:
            self._start_session(request, response)
        except UnauthorizedError as error:
            asks = {"WWW-Authenticate": _LOGIN, "Cache-Control": "no-store"}
            return PlainTextResponse(error.message, error.http_status, headers=asks)
        return response

    async def static_file(self, request: Request) -> Response:
        """`/static/…`."""
        return self.static.response(request, request.path_params["path"])

    async def favicon(self, request: Request) -> Response:
        """`/favicon.ico`, which browsers ask for without being told to."""
        return self.static.response(request, "icons/lectern.svg")


def create_page_routes(start_session: StartSession, root: Path = WEB_ROOT) -> list[BaseRoute]:
    """Routes of the page. `start_session` is called on each page response."""
    pages = Pages(start_session, root)
    return [
        Route("/", pages.chat, methods=["GET"]),
        Route("/c/{conversation}", pages.chat, methods=["GET"]),
        Route("/static/{path:path}", pages.static_file, methods=["GET"]),
        Route("/favicon.ico", pages.favicon, methods=["GET"]),
    ]


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
