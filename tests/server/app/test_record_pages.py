"""The page of one record: everything is text, nothing is loaded, marks stand where they belong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.app.record_pages import marked
from server.service.messages import Feedback
from tests.server.app.site import ALICE, new_key, open_site, write_course

pytestmark = [pytest.mark.anyio, pytest.mark.one_loop]

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"
ANSWER = (
    f"# On Tuesday {EVIL}\n\nOffice hours of the lab are on Tuesday.\n\n"
    "| a | b |\n| - | - |\n| **1** | 2 |\n\n"
    "[click](javascript:alert(3)) ![x](http://evil.example/x.png) <http://evil.example> [1] [9]"
)


async def test_nothing_on_the_page_is_code_or_loaded(tmp_path: Path) -> None:
    course = write_course(tmp_path / "course")
    (course / "evil.en.md").write_text(
        f"# Lab {EVIL}\n\nOffice hours of the lab on Tuesday: {EVIL}\n", "utf-8"
    )
    async with open_site(tmp_path, lambda _: ANSWER) as site:
        question = f"When are the office hours of the lab? {EVIL}"
        answer = (await site.answer(question))["accepted"][0]["message"]
        said = Feedback(id=new_key(), message=answer, value="down", note=EVIL)
        await site.app.chat.feedback(ALICE, said)
        async with site.client() as client:
            reply = await client.get(f"/records/{answer}", headers={"accept-language": "en"})
            chinese = await client.get(f"/records/{answer}", headers={"accept-language": "zh"})
    assert reply.status_code == 200
    tags = set(re.findall(r"<(\w+)", reply.text.partition("</style>")[2]))
    assert not tags & {"script", "img", "a", "iframe", "object", "link", "form", "svg"}
    assert "onerror=alert" not in re.sub(r"&lt;.*?&gt;", "", reply.text)
    assert reply.text.count("&lt;script&gt;") >= 4, "question, answer, source, note"
    assert "<strong>1</strong>" in reply.text
    assert "<mark>" in reply.text
    assert "[9]" not in reply.text
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert '<html lang="zh-CN">' in chinese.text
    assert "提问记录" in chinese.text


@given(
    st.text(alphabet="ab<&>\n中", max_size=30),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=4),
)
def test_marks_add_tags_and_change_no_text(text: str, marks: list[tuple[int, int]]) -> None:
    ranges = [(a, b) for a, b in marks if a < b <= len(text)]
    html = str(marked(text, ranges))
    plain = re.sub(r"</?mark>", "", html)
    assert plain.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&") == text
    inside = sum(
        len(part.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
        for part in re.findall(r"<mark>(.*?)</mark>", html, re.S)
    )
    assert inside == len({place for a, b in ranges for place in range(a, b)})
