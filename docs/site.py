"""What the site shows beside the pages of this folder.

Links that leave the folder cannot be followed from the site: it shows their text and path instead. The page of C headers ends
with the headers themselves, as the manual pages have them. Pages of commands get their help texts from the program.
"""

import importlib.util
import pathlib
import posixpath
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]+)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")
HEADER = re.compile(r"^\| \[\S+\]\((\S+\.h)\)", re.MULTILINE)
HELP = re.compile(r"^\$ gridloom ([a-z ]+) --help$", re.MULTILINE)
PROGRAM = ROOT / "target/release/gridloom"
TAG = re.compile(r"^@(param(?:\[\w+\])?|return) ?", re.MULTILINE)


def on_page_markdown(markdown, page, **_):
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def named(match):
        text, target = match.groups()
        path = posixpath.normpath(posixpath.join(folder, target))
        if path.startswith("docs/"):
            return match.group()
        if not (ROOT / path).exists():
            raise FileNotFoundError(f"{page.file.src_uri} links to {path}, which does not exist")
        return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"

    shown = LINK.sub(named, markdown)
    if page.file.src_uri.startswith("commands/"):
        shown = HELP.sub(with_help, shown)
    if page.file.src_uri == "reference/c.md":
        shown += "".join(header(ROOT / folder / path) for path in HEADER.findall(markdown))
    return shown


def with_help(match):
    """A line `$ gridloom COMMAND --help` with the text that the command prints."""
    shown = subprocess.run([PROGRAM, *match[1].split(), "--help"], capture_output=True, text=True, check=True)
    return "\n".join([match[0], *(line.rstrip() for line in shown.stdout.rstrip().splitlines())])


def header(path):
    """A C header as Markdown: for each function its prototypes and its comment."""
    spec = importlib.util.spec_from_file_location("headers", ROOT / "crates/gridloom-capi/generate/headers.py")
    headers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(headers)
    read = headers.read(path.name, path.read_text())
    parts = [f"\n\n## {path.name}\n\n```text\n{read.preamble}\n```\n"]
    for unit in read.units:
        if unit.names:
            code, comment = "\n".join(unit.code), TAG.sub(r"\n- **\1** ", escaped(unit.comment))
            parts.append(f"\n### {escaped(', '.join(unit.names))}\n\n```c\n{code}\n```\n\n{comment}\n")
    return "".join(parts)


def escaped(text):
    return re.sub(r"([*_<>#|\\])", r"\\\1", text)
