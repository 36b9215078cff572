"""Writes manual pages from the comments of C headers, and lets the program write its own.

    pages.py --out FOLDER --version VERSION [--program gridloom] HEADER...

Section 3 has a page for each function, or for the functions that one comment documents, with links for the
others; section 7 an overview of GridRPC (grpc*.h, OmniRpc.h, omst.h) and one of everything else; section 1 the
program and its commands.
"""

import argparse
import datetime
import os
import pathlib
import re
import subprocess

import headers
import roff

#: Headers whose preamble states that any threads may call all functions, unless a function's comment differs.
MT_SAFE = {"grpc.h"}
ANY_THREADS = "MT-safe: it may be called by any threads at any time."


class Manual:
    """An overview, and its headers."""

    def __init__(self, name, about, read):
        self.name, self.about, self.headers = name, about, read
        self.pages = [unit for header in read for unit in header.units if unit.names]

    def parts(self, header, unit):
        """Splits a unit's comment: description, parameters, result, threads."""
        said, parameters, result = apart(self.with_references(unit))
        threads = ANY_THREADS if header.name in MT_SAFE else ""
        if found := re.search(r"Not MT-safe: .*", said, re.DOTALL):
            threads, said = found.group(), said[: found.start()]
        whole = [said, result]
        for place, text in enumerate(whole):
            text = text.rstrip()
            if text.endswith("MT-safe."):
                threads, whole[place] = ANY_THREADS, text.removesuffix("MT-safe.").rstrip()
        return whole[0].strip(), parameters, whole[1], threads

    def with_references(self, unit):
        """Returns its comment, with a name in place of the "As above" of a result."""
        before = self.pages[self.pages.index(unit) - 1].names[0]
        return re.sub(r"@return As above\b", f"@return As {before}", unit.comment)

    def summary(self, unit):
        """Returns the first sentence of its description."""
        sentence = re.split(r"(?<=\.)\s|(?:^|\s)@", " ".join(unit.comment.split()))[0].rstrip(".").replace("`", "")
        if not sentence or sentence.startswith(("return ", "GRIDLOOM_", "grpc_")):
            return unit.section.title.lower()
        word = sentence.split()[0]
        return sentence[:1].lower() + sentence[1:] if word.capitalize() == word else sentence


def is_of_calls(header):
    return header.name.startswith(("grpc", "OmniRpc", "omst"))


def apart(comment):
    """Splits a comment into description, parameters, and result."""
    said, parameters, result, goes_on = [], [], [], None
    for line in re.sub(r"(?<=\S) @return", "\n@return", comment).split("\n"):
        parameter = re.match(r"@param(?:\[\w+\])? (\w+) +(.*)", line)
        if parameter:
            parameters.append([parameter.group(1), parameter.group(2)])
            goes_on = lambda text: parameters[-1].append(text)  # noqa: E731
        elif line.startswith("@return"):
            goes_on = result.append
            result.append(line.removeprefix("@return").strip())
        elif goes_on and line.startswith(" "):
            goes_on(line.strip())
        else:
            goes_on = None
            said.append(line)
    return "\n".join(said), [(name, " ".join(text)) for name, *text in parameters], " ".join(result)


def page(manual, header, unit, version):
    """Returns the page of a unit."""
    said, parameters, result, threads = manual.parts(header, unit)
    out = [title(unit.names[0], 3, version), ".SH NAME"]
    out.append(f"{', '.join(unit.names)} \\- {roff.escaped(manual.summary(unit))}")
    out += [".SH SYNOPSIS", ".nf", f".B #include <{header.name}>", ".sp"]
    types = types_of(manual, unit)
    shown = [line for kind in types for code in kind.code for line in [*code.split("\n"), ""]]
    shown += [line for code in unit.code for line in code.split("\n")]
    out += [f"\\fB{roff.escaped(line)}\\fR" if line else ".sp" for line in shown] + [".fi"]
    description = roff.running("\n\n".join(filter(None, [said, *(kind.comment for kind in types)])))
    out += [".SH DESCRIPTION", *description]
    if unit.section.text:
        out += [f".SS {roff.inline(unit.section.title)}"] if description else []
        out += roff.running(unit.section.text)
    if parameters:
        out.append(".SH PARAMETERS")
        for name, text in parameters:
            out += [".TP", f"\\fI{name}\\fR", roff.inline(text)]
    if result:
        out += [".SH RETURN VALUE", roff.inline(whole_result(unit, result))]
    if threads:
        out += [".SH THREADS", roff.inline(threads)]
    return "\n".join([*out, *see_also(manual, unit)]) + "\n"


def whole_result(unit, result):
    """Comments of functions that return a code list their errors only."""
    is_code = unit.calls[0].startswith("grpc_error_t") and result.startswith(("GRPC_", "As "))
    if is_code and not result.startswith("GRPC_NO_ERROR"):
        return f"GRPC_NO_ERROR; on an error: {result}"
    return result


def types_of(manual, unit):
    """Returns types that its prototypes name and that have a comment of their own in the same section."""
    words = set(re.findall(r"\w+", " ".join(unit.calls)))
    kinds = [other for header in manual.headers for other in header.units if not other.names and other.section.title]
    return [kind for kind in kinds if kind.section == unit.section and kind is not unit and words & defined(kind)]


def defined(unit):
    return {name for code in unit.code for name in re.findall(r"(\w+)(?:\[\d*\])?;[^;]*$", code)}


def see_also(manual, unit):
    """Returns the other pages of its section, and the overview."""
    others = [other.names[0] for other in manual.pages if other.section == unit.section and other is not unit]
    known = {name for other in manual.pages for name in other.names}
    named = re.findall(r"\w+", unit.comment)
    others += [name for name in dict.fromkeys(named) if name in known and name not in [*others, *unit.names]]
    pages = [f".BR \\%{name} (3)" for name in sorted(others)] + [f".BR \\%{manual.name} (7)"]
    return [".SH SEE ALSO", *(line + " ," for line in pages[:-1]), pages[-1]]


def overview(manual, version):
    """Returns the overview page: the preambles of the headers, and their content."""
    out = [title(manual.name, 7, version), ".SH NAME", f"{manual.name} \\- {manual.about}"]
    for header in manual.headers:
        out += [".SH " + header.name.upper(), *roff.running(header.preamble)]
        for section in dict.fromkeys(unit.section.title for unit in header.units):
            out.append(".SS " + roff.inline(section or "Types and constants"))
            for unit in (unit for unit in header.units if unit.section.title == section):
                out += listed(manual, unit)
    return "\n".join([*roff.tidy(out), ".SH SEE ALSO", ".BR gridloom (1)"]) + "\n"


def listed(manual, unit):
    """Returns a unit in the overview: a line for functions, everything for types and constants."""
    if unit.names:
        names = ", ".join(f"\\fB{name}\\fR(3)" for name in unit.names)
        return [".TP", names, roff.inline(manual.summary(unit))]
    said = roff.running(unit.comment)
    code = [line for code in unit.code for line in code.split("\n")]
    return [".PP", *said, *roff.example(code)]


def title(name, section, version):
    return f'.TH {name.upper()} {section} {day()} "Gridloom {version}" "Gridloom"\n.ad l'


def day():
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    now = datetime.datetime.now(datetime.timezone.utc)
    return f"{datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc) if seconds else now:%Y-%m-%d}"


def write(folder, name, section, text):
    place = folder / f"man{section}"
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.{section}").write_text("\n".join(roff.filled(text.splitlines())) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--program", help="it writes section 1")
    parser.add_argument("headers", type=pathlib.Path, nargs="+")
    options = parser.parse_args()
    read = headers.in_order([headers.read(path.name, path.read_text()) for path in options.headers])
    manuals = [
        Manual("gridrpc", "remote procedure calls from C programs", [h for h in read if is_of_calls(h)]),
        Manual("gridloom", "processes of C programs that communicate by messages",
               [h for h in read if not is_of_calls(h)]),
    ]  # fmt: skip
    for manual in manuals:
        write(options.out, manual.name, 7, overview(manual, options.version))
        for header in manual.headers:
            for unit in (unit for unit in header.units if unit.names):
                write(options.out, unit.names[0], 3, page(manual, header, unit, options.version))
                for other in unit.names[1:]:
                    link = options.out / "man3" / f"{other}.3"
                    link.unlink(missing_ok=True)
                    link.symlink_to(f"{unit.names[0]}.3")
    if options.program:
        words = ["manual", "--out", options.out / "man1", "--date", day()]
        subprocess.run([options.program, *words], check=True)


if __name__ == "__main__":
    main()
