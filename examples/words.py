"""A workflow of programs that every machine has: counts the words of a text in parts, and merges the counts.

Run it: python examples/words.py, or: gridloom simulate -p examples/two-sites.toml -- python examples/words.py
"""

import gridloom as gl

PARTS = 3
TEXT = """
A call is a message to a function. A task becomes ready when its inputs are in the store, and runs to completion.
The mapper decides where things run and which link each datum takes. Links are sockets or simulated.
Nothing above them can tell.
"""

split = gl.program(
    f"split -n l/{PARTS} -d {{text}} part",
    inputs=["text"],
    outputs={f"part{i}": f"part{i:02}" for i in range(PARTS)},
    work="text",
    sizes={f"part{i}": f"text/{PARTS}" for i in range(PARTS)},
)
words = gl.program(
    "tr -cs A-Za-z '\\n'", inputs=["text"], stdin="text", stdout="words", name="words", work="10*text", sizes={"words": "text"}
)
order = gl.program(
    "sort -f {words}",
    inputs=["words"],
    stdout="sorted",
    name="order",
    work="100*words",
    sizes={"sorted": "words"},
    environment={"LC_ALL": "C"},
)
merge = gl.program(
    "sort -f -m " + " ".join(f"{{part{i}}}" for i in range(PARTS)),
    inputs=[f"part{i}" for i in range(PARTS)],
    stdout="merged",
    name="merge",
    work="10*(" + "+".join(f"part{i}" for i in range(PARTS)) + ")",
    sizes={"merged": "+".join(f"part{i}" for i in range(PARTS))},
    environment={"LC_ALL": "C"},
)
count = gl.program("uniq -ci", inputs=["words"], stdin="words", stdout="counts", name="count", work="words", sizes={"counts": "words"})

with gl.local(servers=2, functions=[split, words, order, merge, count]) as grid:
    split, words, order, merge, count = (grid.function(one) for one in (split, words, order, merge, count))
    with grid.group():
        parts = [order(words(part)) for part in split(TEXT.encode())]
        counts = count(merge(*parts))
    # In simulation the text has only a size, no content.
    lines = [line.split() for line in counts.get().decode().splitlines() if "\0" not in line]
    found = [(-int(line[0]), line[1]) for line in lines if len(line) == 2]
    for number, word in sorted(found)[:3]:
        print(-number, word)
