"""Runs the experiments of the papers that Gridloom follows, and writes docs/experiments: the papers' tables and figures, compared with Gridloom's.

    python experiments/run.py                     # all, minutes; `make experiments` builds what is needed first
    python experiments/run.py objects --full      # one, with all sizes of the paper
    python experiments/run.py predictions --part gras    # one part of an experiment; the others keep their figures
    python experiments/run.py --pages             # only writes the pages again, from the figures of the last runs

Each experiment is a module with `run`, which returns figures, and `items`, which compares them with the paper's. Figures are kept
in docs/experiments/NAME.json with the commit and the date.
"""

import argparse
import datetime
import importlib

import common

NAMES = ["smartgridrpc", "netsolve", "omnistorage", "objects", "gras", "alternatives", "predictions"]

#: The heading of a page, unless the experiment has one of its own.
MODULE_HEADING = "{}: the paper's tables and figures, repeated with Gridloom"

INDEX = """# The papers' experiments

`make experiments` repeats experiments of the papers that Gridloom follows. The table lists the papers' tables and figures with
their states: *beyond* (at least as good as in the paper), *same order* (the same trend), *not in the paper*, or the reason why the result differs. Times
are virtual times of the simulator, with three exceptions. For GRAS, real processes exchange messages. Predictions are compared with
real processes on emulated networks. For [today's alternatives](alternatives.md), Dask and Ray run beside Gridloom on an emulated network, and
the states compare Gridloom with them.

"""


def commit():
    """The commit that runs, with a mark if files other than the pages differ from it."""
    changed = common.output(["git", "status", "--porcelain", "--", ":!docs/experiments"], common.ROOT)
    return common.output(["git", "rev-parse", "--short", "HEAD"], common.ROOT).strip() + (
        "-dirty" if changed.strip() else ""
    )


def slug(text):
    return "".join(c if c.isalnum() else "-" for c in text.partition(":")[0].lower()).strip("-")


def draw(item, path):
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    # The same file for the same figures.
    matplotlib.rcParams["svg.hashsalt"] = "gridloom"
    figure, axes = pyplot.subplots(figsize=(7, 4))
    item.plot(axes)
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None}, bbox_inches="tight")
    pyplot.close(figure)


def page(name):
    """Returns the text of an experiment's page, its rows in the list of all tables and figures, and its plots by file."""
    module, kept = importlib.import_module(name), common.load(name)
    skipped = (kept or {}).get("skipped")
    if kept is None or "figures" not in kept:
        state = f"not run: {skipped['reason']}" if skipped else "not run yet"
        return None, [[module.TITLE, "all", state]], {}
    sizes = "all sizes" if kept["is_full"] else "the quick sizes"
    setup = "\n\n".join(part.strip().replace("\n", " ") for part in module.__doc__.split("\n\n")[1:])
    text = [
        f"# {getattr(module, 'HEADING', MODULE_HEADING.format(module.TITLE))}\n\n{module.PAPER}.\n\n{setup}\n\n",
        f"Written by `python experiments/run.py {name}` on {kept['date']}, commit {kept['commit']}, with {sizes}.\n",
    ]
    if skipped:
        text.append(
            f"\nThe last run, on {skipped['date']} with commit {skipped['commit']}, failed: {skipped['reason']}\n"
        )
    rows, plots = [], {}
    for item in module.items(kept["figures"]):
        rows.append([f"[{module.TITLE}]({name}.md)", item.what, item.state])
        text.append(f"\n## {item.what}\n\nState: {item.state}.\n" + (f"\n{item.text}" if item.text else ""))
        if item.plot:
            file = f"{name}-{slug(item.what)}.svg"
            plots[file] = item
            text.append(f"\n![{item.what}]({file})\n")
    return "".join(text).rstrip() + "\n", rows, plots


def index(rows):
    return INDEX + common.table(["paper", "table or figure", "state"], rows)


def write_pages():
    rows = []
    for name in NAMES:
        text, found, plots = page(name)
        rows += found
        if text is not None:
            common.written(common.PAGES / f"{name}.md", text)
        for file, item in plots.items():
            draw(item, common.PAGES / file)
    common.written(common.PAGES / "index.md", index(rows))


def figures_of(name, options):
    """Run an experiment, or one part of it, whose other parts keep their figures."""
    module = importlib.import_module(name)
    if not options.part:
        return module.run(options.full)
    found = module.run(options.full, [options.part])
    found = (common.load(name) or {"figures": {}})["figures"] | found
    return {part: found[part] for part in module.PARTS if part in found}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)}; all if none is named")
    parser.add_argument("--full", action="store_true", help="all sizes of the papers: hours")
    parser.add_argument("--part", help="of 'predictions': only this part")
    parser.add_argument(
        "--pages", action="store_true", help="only write the pages again, from the figures of the last runs"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in NAMES]:
        parser.error(f"no experiment has the name '{unknown[0]}'; there are {', '.join(NAMES)}")
    if options.part and options.names != ["predictions"]:
        parser.error("only 'predictions' has parts: run.py predictions --part NAME")
    failed = []
    for name in [] if options.pages else options.names or NAMES:
        if options.part and options.part not in (parts := importlib.import_module(name).PARTS):
            parser.error(f"no part has the name '{options.part}'; there are {', '.join(parts)}")
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
        about = {"commit": commit(), "date": date}
        try:
            figures = figures_of(name, options)
            common.saved(name, {**about, "is_full": options.full, "figures": figures})
        except (Exception, SystemExit) as error:
            # The other experiments still run, and earlier figures are kept.
            reason = " ".join((str(error) or type(error).__name__).replace("|", "/").split())[:300]
            common.progress(f"{name} is skipped: {reason}")
            common.saved(name, {**(common.load(name) or {}), "skipped": {**about, "reason": reason}})
            failed.append(name)
        write_pages()
    if options.pages:
        write_pages()
    if failed:
        raise SystemExit(f"not run, with the reasons on their pages: {', '.join(failed)}")


if __name__ == "__main__":
    main()
