"""A folder of documents as people have them, `.txt`, `.md`, `.html` and `.pdf`, with a file of questions or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path

from corag_search.errors import InputError
from data_prep.dataset import Document
from data_prep.readers.faults import Faults
from data_prep.readers.lines import text_lines
from data_prep.readers.reader import Asked
from data_prep.readers.rows import FolderOfRows
from data_prep.scripts import guess_language

__all__ = ["FolderOfFiles"]

ENDINGS = (".txt", ".md", ".markdown", ".html", ".htm", ".pdf")
_UNREADABLE = "files that cannot be read, left out"


@dataclass(frozen=True)
class FolderOfFiles:
    """All such files under a folder, and `questions.jsonl`, `.csv` or `.tsv` in it, as `FolderOfRows` has them.

    A document's id is the file's path from the folder, with `/`. Markdown stays as it is written; of HTML the visible
    text is kept, a block a paragraph; of PDF the text of the pages. The subfolder that a file lies in, if any, is its
    domain. Hidden files are passed over.

    Attributes:
        path: The folder.
    """

    path: Path
    repeats = False

    @property
    def name(self) -> str:
        return self.path.resolve().name

    def documents(self, faults: Faults) -> Iterator[tuple[str, Document]]:
        """As `Reader.documents`."""
        if not self.path.is_dir():
            raise InputError(f"{self.path} is not a folder; give one with {', '.join(ENDINGS)} files")
        found = False
        for file in sorted(self.path.rglob("*")):
            inside = file.relative_to(self.path)
            if file.suffix.lower() not in ENDINGS or not file.is_file() or any(p[0] == "." for p in inside.parts):
                continue
            found = True
            try:
                title, text = _read(file, faults)
            except InputError as error:
                faults.add(_UNREADABLE, str(file), str(error).removeprefix(f"{file}: "))
                continue
            domain = inside.parts[0] if len(inside.parts) > 1 else ""
            yield str(file), Document(inside.as_posix(), text, title or file.stem, domain, guess_language(text))
        if not found:
            raise InputError(f"{self.path} has no documents; put {', '.join(ENDINGS)} files there")

    def questions(self, faults: Faults) -> Iterator[Asked]:
        """As `Reader.questions`; none when there is no file of questions."""
        endings = (".jsonl", ".csv", ".tsv")
        if any((self.path / f"questions{ending}").is_file() for ending in endings):
            yield from FolderOfRows(self.path, endings).questions(faults)


def _read(file: Path, faults: Faults) -> tuple[str, str]:
    """Title, where the file has one, and text."""
    if file.suffix.lower() == ".pdf":
        return _pdf(file)
    text = "".join(line for _, line in text_lines(file, faults)).strip()
    if file.suffix.lower() in (".html", ".htm"):
        page = _VisibleText()
        page.feed(text)
        page.close()
        return page.title, page.text
    heading = re.match(r"# +(.+)", text) if file.suffix.lower() in (".md", ".markdown") else None
    return (heading.group(1).strip() if heading else ""), text


def _pdf(file: Path) -> tuple[str, str]:
    try:
        import pypdf
    except ImportError:
        raise InputError("reading PDF needs the package pypdf; install it with: pip install 'corag[train]'") from None
    try:
        with pypdf.PdfReader(file) as pdf:
            pages = [page.extract_text().strip() for page in pdf.pages]
            title = str((pdf.metadata.title if pdf.metadata else None) or "")
    except Exception as error:  # pypdf raises whatever a damaged file makes it meet
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"no readable PDF ({reason}); open it and save it again, or remove it") from None
    return title, "\n\n".join(filter(None, pages))


class _VisibleText(HTMLParser):
    """Text of a page: blocks as paragraphs, without scripts, styles and the like."""

    _HIDDEN = frozenset(["script", "style", "template", "noscript", "head", "nav", "svg"])
    _INLINE = frozenset(
        "a|abbr|b|bdi|bdo|cite|code|em|font|i|kbd|mark|q|s|small|span|strong|sub|sup|tt|u|var".split("|")  # noqa: SIM905
    )
    _VOID = frozenset(["area", "base", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self._blocks: list[str] = [""]
        self._title: list[str] = []

    @property
    def title(self) -> str:
        return " ".join("".join(self._title).split())

    @property
    def text(self) -> str:
        return "\n\n".join(filter(None, (" ".join(block.split()) for block in self._blocks)))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag == "br":
            self._blocks[-1] += " "
        elif tag not in self._INLINE:
            self._blocks.append("")
        if tag not in self._VOID and tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass
        if tag not in self._INLINE:
            self._blocks.append("")

    def handle_data(self, data: str) -> None:
        if "title" in self._open and "svg" not in self._open:
            self._title.append(data)
        elif not self._HIDDEN.intersection(self._open):
            self._blocks[-1] += data
