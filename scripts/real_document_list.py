"""Documents that others made: where they come from, and what must be found in them, and where."""

from __future__ import annotations

from dataclasses import dataclass, field

from server.app.materials.parser_process import ParsedMaterial


@dataclass(frozen=True)
class Source:
    """A package. Versions are those that the phrases were looked up in; of Debian's packages a
    newer one may come, of PyPI's it is asked for."""

    package: str
    version: str
    is_debian: bool = True


@dataclass(frozen=True)
class Phrase:
    """Words of the document, the page or slide that they are printed on, and what the heading
    path must hold."""

    text: str
    page: int | None = None
    slide: int | None = None
    heading: str = ""


@dataclass(frozen=True)
class RealDocument:
    name: str
    source: Source
    path: str
    phrases: tuple[Phrase, ...] = field(default=())

    def faults(self, parsed: ParsedMaterial) -> list[str]:
        """What is not where it should be."""
        return [fault for phrase in self.phrases if (fault := _fault(phrase, parsed))]


def _fault(phrase: Phrase, parsed: ParsedMaterial) -> str:
    """Blanks aside: lines are broken in other places."""
    wanted = "".join(phrase.text.split())
    holding = [p for p in parsed.passages if wanted in "".join((p.heading + p.text).split())]
    if not holding:
        return f"'{phrase.text}' is in no passage"
    for passage in holding:
        place = passage.place
        first = place.page if phrase.page is not None else place.slide
        last = place.to_page if phrase.page is not None else place.to_slide
        number = phrase.page if phrase.page is not None else phrase.slide
        is_there = number is None or (first is not None and first <= number <= (last or first))
        if is_there and phrase.heading in passage.heading:
            return ""
    found = ", ".join(passage.locator for passage in holding)
    return f"'{phrase.text}' is at {found}, not at {phrase}"


_BASH = Source("bash-doc", "5.2.15-2")
_REFERENCE_ZH = Source("debian-reference-zh-cn", "2.100")
_REFERENCE_EN = Source("debian-reference-en", "2.100")
_DEBMAKE = Source("debmake-doc", "1.17-7")
_MAINT_GUIDE = Source("maint-guide-zh-cn", "1.2.53")
_EDU = Source("debian-edu-doc-zh-cn", "2.12.23~deb12u1")
_FAQ = Source("debian-faq-zh-cn", "11.1")
_POLICY = Source("debian-policy", "4.6.2.0")
_DEVELOPERS = Source("developers-reference", "12.18")
_GNUPLOT = Source("gnuplot-doc", "5.4.4")
_R = Source("r-doc-pdf", "4.2.2")
_GIT = Source("git-doc", "2.39.5")
_POSTGRESQL = Source("postgresql-doc-15", "15.20")
_PYTHON = Source("python3.11-doc", "3.11.2-6")
_OFFICER = Source("r-cran-officer", "0.6.0")
_TEX_CHINESE = Source("texlive-lang-chinese", "2022.20230122-1")
_TEX_DOC = Source("texlive-latex-recommended-doc", "2022.20230122-3")
_PYTHON_DOCX = Source("python-docx", "1.2.0", is_debian=False)
_PYTHON_PPTX = Source("python-pptx", "1.0.2", is_debian=False)

_TEX = "usr/share/doc/texlive-doc"
_R_MANUALS = "usr/share/R/doc/manual"
_OFFICER_EXAMPLES = "usr/lib/R/site-library/officer/doc_examples"
_TEST_FILES = "features/steps/test_files"

DOCUMENTS: tuple[RealDocument, ...] = (
    RealDocument(
        "bashref.pdf",
        _BASH,
        "usr/share/doc/bash/bashref.pdf",
        (Phrase("nocasematch shell option", page=21, heading="3.2.5.2 Conditional Constructs"),),
    ),
    RealDocument(
        "debian-reference.zh-cn.pdf",
        _REFERENCE_ZH,
        "usr/share/debian-reference/debian-reference.zh-cn.pdf",
        (
            Phrase("命名管道是一个像管道一样的文件", page=41, heading="1.2.8 命名管道（先进先出）"),
            Phrase("每次访问一个字符", page=41, heading="1.2.10 设备文件"),
        ),
    ),
    RealDocument(
        "debian-reference.en.pdf",
        _REFERENCE_EN,
        "usr/share/debian-reference/debian-reference.en.pdf",
        (Phrase("APT::Periodic::Update-Package-Lists", page=100),),
    ),
    RealDocument(
        "debmake-doc.zh-cn.pdf",
        _DEBMAKE,
        "usr/share/doc/debmake-doc/debmake-doc.zh-cn.pdf",
        (
            Phrase(
                "这里是维护者版本的 debian/control 和 debian/copyright 文件。",
                page=31,
                heading="4.7",
            ),
        ),
    ),
    RealDocument(
        "maint-guide.zh-cn.pdf",
        _MAINT_GUIDE,
        "usr/share/doc/maint-guide-zh-cn/maint-guide.zh-cn.pdf",
        (Phrase("如果你不听我的劝告", page=40),),
    ),
    RealDocument(
        "debian-edu.zh-cn.pdf",
        _EDU,
        "usr/share/doc/debian-edu-doc-zh-cn/debian-edu-bookworm-manual.pdf",
        (Phrase("Icinga 配置文件使用的是 /etc/icinga/sitesummary.cfg", page=70),),
    ),
    RealDocument(
        "policy.pdf",
        _POLICY,
        "usr/share/doc/debian-policy/policy.pdf.gz",
        (
            Phrase(
                "shlibs control files for packages installed on the system",
                page=86,
                heading="8.6.4.1",
            ),
        ),
    ),
    RealDocument(
        "fhs-3.0.pdf",
        _POLICY,
        "usr/share/doc/debian-policy/fhs/fhs-3.0.pdf.gz",
        (Phrase("Color management information (optional)", page=30, heading="/usr/share"),),
    ),
    RealDocument(
        "developers-reference.pdf",
        _DEVELOPERS,
        "usr/share/developers-reference/developers-reference.pdf",
        (Phrase("you can use msguntypot (part of the po4a package)", page=80),),
    ),
    RealDocument(
        "gnuplot.pdf",
        _GNUPLOT,
        "usr/share/doc/gnuplot/gnuplot.pdf",
        (Phrase("The empty option causes filled areas not to be filled", page=200),),
    ),
    RealDocument(
        "R-intro.pdf",
        _R,
        f"{_R_MANUALS}/R-intro.pdf",
        (
            Phrase(
                "do not name functions in this style unless they are intended to be methods",
                page=60,
                heading="10.9",
            ),
        ),
    ),
    RealDocument(
        "R-lang.pdf",
        _R,
        f"{_R_MANUALS}/R-lang.pdf",
        (Phrase("When the group is Ops the special variable .Method is a string vector", page=40),),
    ),
    RealDocument(
        "R-refman.pdf",
        _R,
        f"{_R_MANUALS}/refman.pdf",
        (
            Phrase(
                "character of length 4 giving the names of the component time-series",
                page=1900,
                heading="stlmethods",
            ),
        ),
    ),
    RealDocument(
        "lshort-zh-cn.pdf",
        _TEX_CHINESE,
        f"{_TEX}/latex/lshort-chinese/lshort-zh-cn.pdf",
        (Phrase("直角坐标下，点的位置写作", page=100),),
    ),
    RealDocument(
        "latex-notes-zh-cn.pdf",
        _TEX_CHINESE,
        f"{_TEX}/generic/latex-notes-zh-cn/latex-notes-zh-cn.pdf",
        (Phrase("绝对值", page=60),),
    ),
    RealDocument(
        "impatient-zh-cn.pdf",
        _TEX_CHINESE,
        f"{_TEX}/plain/impatient-cn/cnbook.pdf",
        (Phrase("因此 TEX 会根据当前样式调整间隔的大小", page=250),),
    ),
    RealDocument(
        "beamer-talk.pdf",
        _TEX_DOC,
        f"{_TEX}/latex/beamer/beamerexample-conference-talk.pdf",
        (
            Phrase(
                "Use dynamic programming for finding the partition.",
                page=8,
                heading="How blocks help",
            ),
        ),
    ),
    RealDocument(
        "beamer-lecture-de.pdf",
        _TEX_DOC,
        f"{_TEX}/latex/beamer/beamerexample-lecture-beamer-version.pdf",
        (Phrase("Die Groß- und Kleinbuchstaben", page=21, heading="Formale Alphabete"),),
    ),
    RealDocument(
        "sql-select.html",
        _POSTGRESQL,
        "usr/share/doc/postgresql-doc-15/html/sql-select.html",
        (
            Phrase(
                "The optional WINDOW clause has the general form",
                heading="SELECT › Parameters › WINDOW Clause",
            ),
        ),
    ),
    RealDocument(
        "classes.html",
        _PYTHON,
        "usr/share/doc/python3.11/html/tutorial/classes.html",
        (
            Phrase(
                "A namespace is a mapping from names to objects.",
                heading="9.2. Python Scopes and Namespaces",
            ),
        ),
    ),
    RealDocument(
        "git-user-manual.html",
        _GIT,
        "usr/share/doc/git-doc/user-manual.html",
        (
            Phrase(
                "The git-bisect(1) command can help you do this:",
                heading="How to use bisect to find a regression",
            ),
        ),
    ),
    RealDocument(
        "debian-reference-ch01.zh-cn.html",
        _REFERENCE_ZH,
        "usr/share/debian-reference/ch01.zh-cn.html",
        (Phrase("字符终端的命令行和 curses 软件包", heading="1.1.10. 建议新手安装的额外软件包"),),
    ),
    RealDocument(
        "shellmath.md",
        _BASH,
        "usr/share/doc/bash/examples/shellmath/README.md",
        (Phrase("evaluate the *15th-degree* Maclaurin polynomial", heading="The demos"),),
    ),
    RealDocument(
        "debian-faq.zh-cn.txt",
        _FAQ,
        "usr/share/doc/debian/FAQ/debian-faq.zh-cn.txt.gz",
        (Phrase("由于类似的原因，对 hppa（惠普的 PA-RISC 机器）", heading="4.1."),),
    ),
    RealDocument(
        "officer-example.docx",
        _OFFICER,
        f"{_OFFICER_EXAMPLES}/example.docx",
        (Phrase("Quisque tristique", heading="Sub title 1"),),
    ),
    RealDocument(
        "officer-example.pptx",
        _OFFICER,
        f"{_OFFICER_EXAMPLES}/example.pptx",
        (Phrase("an unordered", slide=2),),
    ),
    RealDocument(
        "python-docx-blocks.docx",
        _PYTHON_DOCX,
        f"python_docx-1.2.0/{_TEST_FILES}/blk-paras-and-tables.docx",
        (Phrase("Text before"),),
    ),
    RealDocument(
        "python-pptx-spacing.pptx",
        _PYTHON_PPTX,
        f"python_pptx-1.0.2/{_TEST_FILES}/txt-paragraph-spacing.pptx",
        (Phrase("Paragraph having space after of 6 pt", slide=2),),
    ),
)

SMALL = (
    "bashref.pdf",
    "debmake-doc.zh-cn.pdf",
    "fhs-3.0.pdf",
    "shellmath.md",
    "debian-faq.zh-cn.txt",
    "classes.html",
    "officer-example.docx",
    "officer-example.pptx",
)
"""Those that the test suite reads: of every kind, quickly fetched."""
