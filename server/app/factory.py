"""`create_app`: store, service, application and pages over one engine, as one ASGI application."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from engine.api import Engine, EngineState, ModelInfo
from server.app.access import Access
from server.app.account_sessions import AccountSessions
from server.app.accounts import Accounts
from server.app.answer_options import ChatDefaults
from server.app.answer_parts import left_by_crash
from server.app.answering import Answering
from server.app.api_accounts import AccountApi
from server.app.api_conversations import ConversationApi
from server.app.api_courses import CourseApi
from server.app.api_materials import MaterialApi
from server.app.api_records import RecordApi
from server.app.api_search import SearchApi
from server.app.api_status import StatusApi
from server.app.api_uploads import UploadApi
from server.app.carrying import Carrying
from server.app.chat import ChatApp
from server.app.course_removal import CourseRemoval
from server.app.course_settings import CourseSettings
from server.app.drafts import Drafts
from server.app.erasure import Erasure
from server.app.import_replies import ImportReplies
from server.app.library_setup import make_course_folders, make_library, upload_limits
from server.app.links import IssuedLink, Links
from server.app.material_text import MaterialText
from server.app.materials.import_jobs import ImportJobs
from server.app.memberships import Memberships
from server.app.own_data import OwnData
from server.app.pages import Pages, create_page_routes
from server.app.question_counter import QuestionCounter
from server.app.record_indexer import RecordIndexer
from server.app.record_pages import RecordPage
from server.app.retention import Retention
from server.app.retrieval_setup import make_retriever, make_vectors
from server.app.server_state import Gauges, ServerState
from server.app.sessions import Sessions, load_secret
from server.app.summaries import Summaries
from server.config import ServerConfig
from server.service.auth import Auth
from server.service.errors import MethodNotAllowedError, NotFoundError, ServiceError
from server.service.http import Receive, Scope, Send
from server.service.key_store import KeyFile, KeyStore
from server.service.limits import ServiceLimits
from server.service.prices import PriceList
from server.service.routes import create_routes
from server.service.service import Service
from server.service.tracing import Tracing
from server.store.conversations import Conversations
from server.store.courses import Courses
from server.store.database import Database, sqlite_url
from server.store.enrolments import Enrolments
from server.store.login_sessions import LoginSessions
from server.store.materials import Materials
from server.store.messages import Messages
from server.store.records import Records
from server.store.shown_passages import ShownPassages
from server.store.users import Users

log = logging.getLogger(__name__)

SAMPLE_COURSE = Path(__file__).parent / "sample_course"


class App:
    """The whole site as ASGI. Owned by the event loop's thread.

    The lifespan opens the store, starts the engine, loads the courses; at its end everything
    is drained and closed in the opposite order."""

    def __init__(
        self,
        config: ServerConfig,
        engine: Engine,
        course_folders: Sequence[Path] = (SAMPLE_COURSE,),
        tracing: Tracing | None = None,
    ) -> None:
        self.engine = engine
        self._course_folders = course_folders
        self.database = Database(config.database_url or sqlite_url(config.data_path / "lectern.db"))
        self.account_sessions = AccountSessions(LoginSessions(self.database))
        auth = Auth(
            load_secret(config.secret, config.data_path),
            key_store(config),
            asks_for_login=config.asks_for_login,
            sessions=self.account_sessions,
        )
        self.service = Service(
            engine,
            auth,
            service_limits(config),
            origins=config.origins,
            tracing=tracing,
            prices=price_list(config),
            splits_reasoning=config.reasoning == "auto",
        )
        self.messages = Messages(self.database)
        courses, conversations = Courses(self.database), Conversations(self.database)
        self.drafts = Drafts(self.messages)
        self._vectors = make_vectors(config, self.database)
        retriever = make_retriever(config, self.database, self._vectors, self.service.likelihood)
        answering = Answering(
            self.messages,
            self.drafts,
            self.service.generation,
            retriever,
            num_passages=config.num_passages,
        )
        sessions = Sessions(auth, self.account_sessions)
        pages = Pages(sessions.start)
        users, enrolments = Users(self.database), Enrolments(self.database)
        materials = Materials(self.database)
        self.access = Access(sessions, enrolments, materials)
        self.chat = ChatApp(
            self.service.runs,
            answering,
            self.access,
            conversations,
            self.messages,
            self.service.user_sessions,
            carrying=Carrying(
                conversations,
                self.messages,
                answering,
                Summaries(self.messages, self.drafts, self.service.generation),
                self.service.user_sessions,
            ),
            counter=QuestionCounter(self.service.generation, max_tokens=config.default_max_tokens),
            limits=self.service.limits,
            defaults=ChatDefaults(max_tokens=config.default_max_tokens),
            static_version=pages.static.version,
        )
        self.service.plug_in(self.chat)
        self.account_sessions.on_end(self.service.sockets.close_invalid)
        count_tokens = self.service.generation.count_tokens
        self.library = make_library(config, self.database, count_tokens)
        self._folders = make_course_folders(
            self.library, self.database, count_tokens, max_bytes=config.max_material_bytes
        )
        self.accounts = Accounts(users, self.account_sessions)
        self.links = Links(users)
        self.first_link: IssuedLink | None = None
        """Made at start, while there is no teacher: to the first one's account."""
        memberships = Memberships(
            courses,
            enrolments,
            lambda user: self.service.sockets.close_user(user, "membership changed"),
        )
        self.erasure = Erasure(self.service.runs, self.account_sessions, conversations)
        account_api = AccountApi(
            self.access,
            sessions,
            self.accounts,
            self.links,
            memberships,
            self.erasure.erase,
            asks_for_login=config.asks_for_login,
            public_url=config.public_url,
        )
        removal = CourseRemoval(
            courses, conversations, materials, self.service.runs, self.library.delete
        )
        course_api = CourseApi(
            self.access,
            self.accounts,
            self.links,
            memberships,
            enrolments,
            CourseSettings(courses),
            removal.remove,
            public_url=config.public_url,
        )
        status = StatusApi(
            state=lambda: self.service.admission.state,
            model=self._model,
            server=ServerState(
                Gauges(
                    lambda: engine.stats,
                    lambda: self.service.runs.num_running,
                    lambda: self.service.sockets.num_sessions,
                ),
                config.data_path,
            ),
        )
        own = ConversationApi(
            self.access,
            self.service.runs,
            courses,
            conversations,
            self.messages,
            self.service.user_sessions,
        )
        self.records = Records(self.database)
        self.record_indexer = RecordIndexer(self.records)
        self.messages.on_end(self.record_indexer.add)
        self.retention = Retention(courses, conversations, days=config.retention_days)
        record_api = RecordApi(
            self.access,
            self.records,
            OwnData(users, enrolments, conversations, self.messages),
            RecordPage(),
        )
        replies = ImportReplies(self.library, ImportJobs())
        material_api = MaterialApi(
            self.library, replies, MaterialText(materials, ShownPassages(self.database))
        )
        search_api = SearchApi(retriever, num_given=config.num_passages)
        upload_api = UploadApi(self.access, self.library, replies, upload_limits(config))
        apis = (
            *(status, account_api, course_api, material_api, upload_api, search_api),
            *(record_api, own),
        )
        site = Starlette(
            routes=[
                *(route for api in apis for route in api.routes()),
                *create_page_routes(pages),
            ],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _tell_http_error},
        )
        site.state.access = self.access
        self.routes = tuple(site.routes)
        """The application's own: its API and its pages."""
        self._routes = create_routes(self.service, site)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._routes(scope, receive, send)

    def refuse_new_work(self) -> None:
        """From now on `/ready` says `draining` and new requests are refused. Idempotent."""
        self.service.admission.drain()

    async def drain(self) -> None:
        """Takes no new work; returns when every run has ended and is stored, the engine has
        stopped, and every socket has been told. Idempotent."""
        # First: the end of the library waits for a material that is being stored.
        self.refuse_new_work()
        await self.library.stop()
        await self.service.shutdown()

    @asynccontextmanager
    async def _lifespan(self, _site: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self.database.close)
            await self.database.open()
            num_interrupted = await self.messages.interrupt_running(left_by_crash)
            if num_interrupted:
                log.warning("%d answers were cut when the server last ended", num_interrupted)
            self.first_link = await self.links.for_first_teacher()
            await self.account_sessions.start()
            stack.push_async_callback(self.account_sessions.stop)
            self.drafts.start()
            stack.push_async_callback(self.drafts.stop)
            await self.record_indexer.start()
            stack.push_async_callback(self.record_indexer.stop)
            self.retention.start()
            stack.push_async_callback(self.retention.stop)
            stack.push_async_callback(self.drain)
            await self.service.start()
            # After the engine: passages are measured in the model's tokens.
            stack.push_async_callback(self.library.stop)
            for folder in self._course_folders:
                await self._folders.import_course(folder)
            await self.library.start()
            if self._vectors is not None:
                self._vectors.start()
                stack.push_async_callback(self._vectors.stop)
            yield

    def _model(self) -> ModelInfo | None:
        return None if self.engine.state is EngineState.STARTING else self.engine.model


def create_app(
    config: ServerConfig,
    engine: Engine,
    *,
    course_folders: Sequence[Path] = (SAMPLE_COURSE,),
    tracing: Tracing | None = None,
) -> App:
    """The site over an engine that has not been started: its lifespan does that. Each of
    `course_folders` is a course (`course.json` and its files), brought up to date at start.
    Raises KeyFileError."""
    return App(config, engine, course_folders, tracing)


def service_limits(config: ServerConfig) -> ServiceLimits:
    """The service's share of the configuration."""
    return ServiceLimits(
        max_body_bytes=config.max_body_bytes,
        max_message_bytes=config.max_message_bytes,
        max_runs_per_connection=config.max_runs_per_connection,
        max_runs_per_user=config.max_runs_per_user,
        max_concurrent_per_user=config.max_concurrent_per_user,
        tokens_per_minute_per_user=config.tokens_per_minute_per_user,
        max_connections=config.max_connections,
        max_connections_per_user=config.max_connections_per_user,
        max_messages_per_s=config.max_messages_per_s,
        abandon_grace_s=config.abandon_grace_s,
        run_log_ttl_s=config.run_log_ttl_s,
        run_log_max_events=config.run_log_max_events,
        heartbeat_s=config.heartbeat_s,
        send_timeout_s=config.send_timeout_s,
        body_timeout_s=config.body_timeout_s,
        request_timeout_s=config.request_timeout_s,
        drain_timeout_s=config.drain_timeout_s,
        tokenizer_threads=config.tokenizer_threads,
    )


def key_store(config: ServerConfig) -> KeyStore:
    """The API keys. Closed from the start where a file is named or other machines come in: what
    is missing then lets nobody in. Raises KeyFileError."""
    keys = KeyStore(KeyFile(config.keys_path))
    if config.api_keys_file is not None or config.is_exposed:
        keys.close()
    if keys.is_closed and not keys.ring.records:
        log.warning("there are no API keys yet: `scripts/keys create NAME` makes one")
    return keys


def price_list(config: ServerConfig) -> PriceList | None:
    """What tokens cost; None where no prices are given."""
    hit, miss, output = config.price_input_hit, config.price_input_miss, config.price_output
    if hit is None or miss is None or output is None:
        return None
    return PriceList(hit, miss, output, config.price_currency)


async def _tell_http_error(request: Request, error: Exception) -> Response:
    """An unknown address or method: JSON where programs look, a line of text elsewhere."""
    assert isinstance(error, HTTPException)
    if not request.url.path.startswith("/api/"):
        return PlainTextResponse(error.detail, error.status_code, headers=error.headers)
    told: ServiceError = NotFoundError(f"There is no {request.url.path[:200]}.")
    if error.status_code == 405:
        told = MethodNotAllowedError(f"{request.url.path[:200]} does not take {request.method}.")
    return Response(
        told.openai_body(), told.http_status, headers=error.headers, media_type="application/json"
    )
