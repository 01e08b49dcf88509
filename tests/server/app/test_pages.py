"""The pages' routes, headers and static files, and that their catalogues say the same."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from server.app.pages import (
    LANGUAGES,
    TABS,
    WEB_ROOT,
    Pages,
    content_security_policy,
    create_page_routes,
    imported_modules,
    load_catalogue,
)
from server.app.static_files import StaticTree
from server.service.errors import UnauthorizedError

pytestmark = pytest.mark.anyio

STATIC = WEB_ROOT / "static"
OWN_SCRIPTS = sorted((STATIC / "js").rglob("*.js"))
CHAT_SCRIPTS = [
    path
    for path in OWN_SCRIPTS
    if path.relative_to(STATIC / "js").parts[0] not in ("teach", "entry")
]
PARTS = ("", "teach", "entry")
"""Each page's catalogue, besides the common one."""
TEMPLATES = [WEB_ROOT / "templates" / f"{name}.html" for name in ("page", "chat", "teach", "entry")]
ENTRY_PAGES = ("/login", "/join", "/join/ABCD2345", "/start/a-token")
OWN_PAGES = ("/teach", "/teach/os", "/teach/os/log", "/account")


def start_session(_request: Request, response: Response) -> None:
    response.set_cookie("lectern_session", "signed", httponly=True)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=Starlette(routes=create_page_routes(Pages(start_session))))
    async with httpx.AsyncClient(transport=transport, base_url="http://course.test") as client:
        yield client


def directives(policy: str) -> dict[str, str]:
    return dict(part.partition(" ")[::2] for part in policy.split("; "))


async def test_the_page_comes_with_a_session_and_security_headers(
    client: httpx.AsyncClient,
) -> None:
    response = await client.get("/")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.cookies["lectern_session"] == "signed"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["x-frame-options"] == "DENY"
    assert response.headers["referrer-policy"] == "same-origin"
    assert "no-cache" in response.headers["cache-control"]
    policy = directives(response.headers["content-security-policy"])
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["font-src"] == "'self'"
    assert policy["img-src"] == "'self'"
    assert policy["connect-src"] == "'self' ws://course.test wss://course.test"
    assert policy["base-uri"] == policy["frame-ancestors"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in response.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/c/abc", *OWN_PAGES, *ENTRY_PAGES])
async def test_nothing_in_a_page_is_inline(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.status_code == 200
    policy = directives(response.headers["content-security-policy"])
    assert policy["require-trusted-types-for"] == "'script'"
    assert re.findall(r"<script(?![^>]*\bsrc=)", response.text) == []
    assert re.findall(r"<style|\bstyle=|\son\w+=", response.text) == []
    assert re.findall(r"""(?:src|href)=["'](?:https?:)?//""", response.text) == []


@pytest.mark.parametrize("path", ENTRY_PAGES)
async def test_entry_needs_no_session_and_starts_none(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert "set-cookie" not in response.headers
    # A code or token in the address is told to nobody else, and stays in no cache.
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"


async def test_what_an_address_names_is_text_in_its_page(client: httpx.AsyncClient) -> None:
    hostile = "%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    for path in (f"/join/{hostile}", f"/start/{hostile}", f"/teach/{hostile}"):
        response = await client.get(path)
        assert "<script>alert" not in response.text, path


async def test_a_tab_that_is_none_leads_to_the_course(client: httpx.AsyncClient) -> None:
    response = await client.get("/teach/os/none")
    assert (response.status_code, response.headers["location"]) == (303, "/teach/os")


@pytest.mark.parametrize(
    ("path", "back"),
    [
        ("/", "%2F"),
        ("/c/abc", "%2Fc%2Fabc"),
        ("/teach/os/log?kind=down", "%2Fteach%2Fos%2Flog%3Fkind%3Ddown"),
    ],
)
async def test_who_must_log_in_is_led_there_and_back(path: str, back: str) -> None:
    def refuse(_request: Request, _response: Response) -> None:
        raise UnauthorizedError("Please log in.")

    transport = httpx.ASGITransport(app=Starlette(routes=create_page_routes(Pages(refuse))))
    async with httpx.AsyncClient(transport=transport, base_url="http://course.test") as client:
        response = await client.get(path)
        assert (response.status_code, response.headers["location"]) == (303, f"/login?next={back}")
        assert response.headers["cache-control"] == "no-store"
        assert (await client.get("/login")).status_code == 200


async def test_the_chat_loads_nothing_of_the_other_pages(client: httpx.AsyncClient) -> None:
    html = (await client.get("/")).text
    assert html.count("modulepreload") > 30
    assert not re.search(r"js/(teach|entry)/|i18n/(teach|entry)", html)
    # What is loaded on demand is not loaded at once; what belongs to the first load is, libraries
    # too.
    assert not re.search(r"help-sheet|katex|highlight", html)
    assert re.search(r"modulepreload\" href=\"[^\"]*/markdown-it", html)


async def test_a_page_is_compressed_for_who_takes_it(client: httpx.AsyncClient) -> None:
    small = await client.get("/", headers={"Accept-Encoding": "gzip"})
    plain = await client.get("/", headers={"Accept-Encoding": "identity"})
    assert small.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert small.text == plain.text
    assert int(small.headers["content-length"]) < int(plain.headers["content-length"]) / 3
    assert "Accept-Encoding" in plain.headers["vary"]


async def test_a_page_names_its_version(client: httpx.AsyncClient) -> None:
    """By which the chat knows, from the welcome, that there is a newer one."""
    assert f'data-version="{StaticTree.load(STATIC).version}"' in (await client.get("/")).text


def test_modules_are_followed_through_their_imports(tmp_path: Path) -> None:
    (tmp_path / "js" / "deep").mkdir(parents=True)
    sources = {
        "js/main.js": 'import "./first.js";\nimport {\n  a,\n  b,\n} from "./deep/second.js";\n',
        "js/first.js": '// from "./none.js"\nexport { x } from "./deep/third.js";\n',
        "js/deep/second.js": 'import * as m from "../main.js";\nconst y = "./none.js";\n'
        'export const load = () => import("./on-demand.js");\n',
        "js/deep/third.js": "export const x = 1;\n",
        "js/deep/on-demand.js": 'import "./fourth.js";\n',
        "js/deep/fourth.js": "",
    }
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    assert imported_modules(tmp_path, "js/main.js") == [
        "js/deep/second.js",
        "js/deep/third.js",
        "js/first.js",
    ]


@pytest.mark.parametrize("host", [None, "", "a b", "x; script-src *", "evil'", "h:123456", "a\nb"])
def test_a_host_that_is_none_does_not_reach_the_policy(host: str | None) -> None:
    assert directives(content_security_policy(host))["connect-src"] == "'self'"


@pytest.mark.parametrize("host", ["localhost:8000", "10.0.0.7", "[::1]:8000", "a-b.example"])
def test_a_host_is_named_for_its_websockets(host: str) -> None:
    policy = directives(content_security_policy(host))
    assert policy["connect-src"] == f"'self' ws://{host} wss://{host}"


async def test_a_conversation_address_opens_the_page_on_it(client: httpx.AsyncClient) -> None:
    assert 'data-conversation="c0ffee"' in (await client.get("/c/c0ffee")).text
    assert 'data-conversation=""' in (await client.get("/")).text
    strange = await client.get("/c/%22%3E%3Cscript%3E")
    assert (strange.status_code, strange.headers["location"]) == (303, "/")


@pytest.mark.parametrize(
    ("accept", "cookie", "lang"),
    [
        ("", "", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "", "zh-CN"),
        ("en;q=0.5, zh-TW;q=0.9", "", "zh-CN"),
        ("fr, de;q=0.9", "", "en"),
        ("fr, zh;q=0.1", "", "zh-CN"),
        ("zh-CN", "lectern_lang=en", "en"),
        ("en", "lectern_lang=xx", "en"),
        ("zh;q=x, en;q=0.1", "", "en"),
    ],
)
async def test_the_language_is_the_readers(
    client: httpx.AsyncClient, accept: str, cookie: str, lang: str
) -> None:
    response = await client.get("/", headers={"Accept-Language": accept, "Cookie": cookie})
    assert f'<html lang="{lang}"' in response.text
    assert "Accept-Language" in response.headers["vary"]


async def test_the_theme_is_rendered_only_if_it_is_one(client: httpx.AsyncClient) -> None:
    chosen = await client.get("/", headers={"Cookie": "lectern_theme=dark"})
    assert 'data-theme="dark"' in chosen.text
    other = await client.get("/", headers={"Cookie": 'lectern_theme=x"y'})
    assert "data-theme=" not in other.text


async def test_every_address_in_the_page_is_cached_for_ever(client: httpx.AsyncClient) -> None:
    html = (await client.get("/")).text
    addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', html))
    assert len(addresses) > 10
    for address in addresses:
        response = await client.get(address)
        assert response.status_code == 200, address
        assert response.headers["cache-control"] == "max-age=31536000, immutable"
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_imports_between_modules_stay_under_the_hash(client: httpx.AsyncClient) -> None:
    """Relative addresses resolve to files that exist: a module is never loaded twice."""
    tree = StaticTree.load(STATIC)
    found = 0
    for path in OWN_SCRIPTS:
        source = path.read_text("utf-8")
        for address in re.findall(r"""(?:from |import\()"(\.[^"]+)\"""", source):
            assert (path.parent / address).resolve().is_relative_to(STATIC)
            relative = (path.parent / address).resolve().relative_to(STATIC).as_posix()
            assert relative in tree, f"{path.name} imports {address}"
            found += 1
    assert found > 20


async def test_an_old_address_is_served_but_not_kept(client: httpx.AsyncClient) -> None:
    for address in ("/static/0123456789abcdef/js/main.js", "/static/js/main.js"):
        response = await client.get(address)
        assert response.status_code == 200
        assert response.headers["cache-control"] == "no-cache"
        assert response.content == (STATIC / "js" / "main.js").read_bytes()
    again = await client.get(address, headers={"If-None-Match": response.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/static/",
        "/static/js/none.js",
        "/static/../templates/chat.html",
        "/static/%2e%2e/templates/chat.html",
        "/static/junk/js/main.js",
        "/static/0123456789abcdef/../../pyproject.toml",
    ],
)
async def test_nothing_else_is_served(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("js/main.js", "text/javascript; charset=utf-8"),
        ("vendor/markdown-it-15.0.3/markdown-it.esm.min.mjs", "text/javascript; charset=utf-8"),
        ("css/base.css", "text/css; charset=utf-8"),
        ("js/i18n/zh.json", "application/json"),
        ("icons/lectern.svg", "image/svg+xml"),
        ("vendor/katex-0.19.1/fonts/KaTeX_Main-Regular.woff2", "font/woff2"),
    ],
)
async def test_types_and_compression(client: httpx.AsyncClient, path: str, media_type: str) -> None:
    url = StaticTree.load(STATIC).url(path)
    response = await client.get(url, headers={"Accept-Encoding": "gzip"})
    assert response.headers["content-type"] == media_type
    plain = await client.get(url, headers={"Accept-Encoding": "identity"})
    assert plain.content == response.content == (STATIC / path).read_bytes()
    assert "content-encoding" not in plain.headers
    assert plain.headers["vary"] == "Accept-Encoding"


def test_the_hash_changes_with_any_file(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1")
    (tmp_path / ".hidden").write_text("x")
    first = StaticTree.load(tmp_path)
    assert first.paths() == ["a.js"]
    assert StaticTree.load(tmp_path).version == first.version
    (tmp_path / "a.js").write_text("2")
    changed = StaticTree.load(tmp_path)
    (tmp_path / "b.js").write_text("")
    assert len({first.version, changed.version, StaticTree.load(tmp_path).version}) == 3


async def test_every_style_sheet_is_some_pages(client: httpx.AsyncClient) -> None:
    sheets = re.compile(r'rel="stylesheet" href="/static/[0-9a-f]{16}/css/([\w-]+)\.css"')
    linked = {
        name
        for path in ("/", *ENTRY_PAGES, *OWN_PAGES)
        for name in sheets.findall((await client.get(path)).text)
    }
    assert linked == {path.stem for path in (STATIC / "css").glob("*.css")}
    # Each is about one thing.
    for path in (STATIC / "css").glob("*.css"):
        assert len(path.read_text("utf-8").splitlines()) < 450, path.name


def test_the_first_load_is_light() -> None:
    """Everything but formulas and highlighting, gzipped, stays below 250 KB."""
    eager = [
        path
        for folder in ("js", "css", "vendor/markdown-it-15.0.3", "vendor/dompurify-3.5.0")
        for path in (STATIC / folder).rglob("*")
        if path.suffix in {".js", ".mjs", ".css", ".json"}
        and not re.search(r"\b(teach|entry|forms)\b", path.relative_to(STATIC).as_posix())
    ]
    assert sum(len(gzip.compress(path.read_bytes(), 6)) for path in eager) < 250_000


def test_every_vendored_library_has_its_licence() -> None:
    folders = [path for path in (STATIC / "vendor").iterdir() if path.is_dir()]
    assert len(folders) == 4
    for folder in folders:
        assert re.search(r"-\d+\.\d+\.\d+$", folder.name)
        assert (folder / "LICENSE").is_file()


PLURAL_FORMS = {"en": {"one", "other"}, "zh": {"other"}}
"""What a language's rules of plurals tell apart: the forms that a counted string has in it, of
which "other" is the key itself."""


def plural_form(key: str) -> str | None:
    """The form that a key is for, where it is for one."""
    match = re.fullmatch(r"\w+\.\w+\.(zero|one|two|few|many)", key)
    return match and match[1]


def bare(key: str) -> str:
    """The key without the form that it is for."""
    form = plural_form(key)
    return key if form is None else key.removesuffix(f".{form}")


@pytest.mark.parametrize("part", PARTS)
def test_the_catalogues_have_the_same_strings(part: str) -> None:
    catalogues = {language: load_catalogue(language, part=part) for language in LANGUAGES}
    english = catalogues["en"]
    for language, catalogue in catalogues.items():
        assert all(text.strip() for text in catalogue.values())
        # Forms of a plural are a matter of the language; everything else must be there.
        keys = {key for key in catalogue if plural_form(key) is None}
        assert keys == {key for key in english if plural_form(key) is None}, language
        for key in keys:
            names = set(re.findall(r"\{\w+\}", catalogue[key]))
            assert names == set(re.findall(r"\{\w+\}", english[key])), f"{language}: {key}"


@pytest.mark.parametrize("part", PARTS)
def test_every_counted_string_has_the_forms_of_its_language(part: str) -> None:
    own = sorted((STATIC / "js" / part).glob("*.js")) if part else CHAT_SCRIPTS
    script = "\n".join(path.read_text("utf-8") for path in own)
    counted = set(re.findall(r'\bplural\("([\w.]+)"', script))
    assert len(counted) > 2 or part == "entry"
    for language, forms in PLURAL_FORMS.items():
        catalogue = load_catalogue(language) | load_catalogue(language, part=part)
        for key in counted:
            names = {key} | {f"{key}.{form}" for form in forms - {"other"}}
            assert {name for name in catalogue if name.startswith(f"{key}.")} == names - {key}
            assert names <= catalogue.keys(), language


ERROR_CODES = {
    "bad_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "conversation_busy",
    "rate_limited",
    "queue_full",
    "prompt_too_long",
    "model_unavailable",
    "resume_gone",
    "shutting_down",
    "internal",
}
"""Of the protocol."""

API_WORDS = {
    *("markdown", "text", "html", "csv", "pdf", "docx", "pptx"),
    *("waiting", "parsing", "ready", "failed", "duplicate"),
    *("teacher", "student"),
    *("title", "heading", "text"),
}
"""Formats and states of materials, roles, and columns of a passage."""


def test_every_string_that_is_used_exists_and_is_used() -> None:
    catalogues = [load_catalogue("en", part=part) for part in PARTS]
    assert len(set().union(*catalogues)) == sum(map(len, catalogues)), "a key stands in two"
    keys = {bare(key) for catalogue in catalogues for key in catalogue}
    used = used_keys(TEMPLATES, OWN_SCRIPTS, keys)
    assert used - keys == set()
    assert keys - used == set()


@pytest.mark.parametrize("part", PARTS)
def test_every_page_finds_its_strings(part: str) -> None:
    """What a page's own files and the shared ones use is in the catalogues that it loads."""
    loaded = load_catalogue("en") | (load_catalogue("en", part=part) if part else {})
    own = sorted((STATIC / "js" / part).glob("*.js")) if part else CHAT_SCRIPTS
    template = WEB_ROOT / "templates" / f"{part or 'chat'}.html"
    every = {bare(key) for name in PARTS for key in load_catalogue("en", part=name)}
    used = used_keys([template], own, every)
    assert len(used) > 10
    assert used - {bare(key) for key in loaded} == set()


def used_keys(templates: list[Path], scripts: list[Path], keys: set[str]) -> set[str]:
    """The keys that templates and scripts name."""
    template = "\n".join(path.read_text("utf-8") for path in templates)
    script = "\n".join(path.read_text("utf-8") for path in scripts)
    used = set(re.findall(r"""\bt\(["']([\w.]+)["']\)""", template))
    used |= set(re.findall(r'data-t(?:-[\w-]+)?="([\w.]+)"', template))
    used |= {f"tab.{tab}" for tab in TABS} if '"tab." ~' in template else set()
    quoted = set(re.findall(r'"([\w.]+)"', script))
    used |= {text for text in quoted if text in keys or _is_key(text, keys)}
    # Keys that a script puts together, such as `error.${code}`, from words that it has: its own,
    # those of the protocol, and values of fields of the API.
    words = quoted | ERROR_CODES | API_WORDS
    for prefix in re.findall(r"`(\w+\.)\$\{[\w.#]+\}`", script):
        used |= {key for key in keys if key.startswith(prefix) and key.split(".")[1] in words}
    return used


def _is_key(text: str, keys: set[str]) -> bool:
    head, dot, tail = text.partition(".")
    return bool(dot and tail) and any(key.startswith(f"{head}.") for key in keys)


def test_every_error_code_of_the_protocol_has_its_words() -> None:
    for language in LANGUAGES:
        catalogue = load_catalogue(language)
        assert {code for code in ERROR_CODES if f"error.{code}" not in catalogue} == set()


def test_every_meaning_of_the_help_sheet_is_there_and_used() -> None:
    english, chinese = (load_catalogue(language, part="help") for language in LANGUAGES)
    sheet = (STATIC / "js" / "shell" / "help-sheet.js").read_text("utf-8")
    assert english.keys() == chinese.keys() == set(re.findall(r'"(meaning\.\w+)"', sheet))
    assert all(text.strip() for text in (*english.values(), *chinese.values()))


def test_the_catalogues_are_plain_json() -> None:
    for path in (STATIC / "js" / "i18n").iterdir():
        text = path.read_text("utf-8")
        pairs = json.loads(text, object_pairs_hook=list)
        assert len(pairs) == len(dict(pairs)), "a key stands twice"
