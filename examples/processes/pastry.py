"""A node joins the overlay network Pastry and is welcomed with rows of a routing table.

The message is that of section 5 of the report on GRAS (INRIA RR-5789), 84 bytes on i386 without rows. `pastry.rs` is the same
in Rust.

    gridloom deploy -d examples/processes/pastry.toml -- python examples/processes/pastry.py
"""

import gridloom as gl
import numpy as np

PORT = 4003


@gl.message
class Join:
    id: gl.ctypes.c_int
    rows_wanted: gl.ctypes.c_int


@gl.message
class Row:
    which_row: gl.ctypes.c_int
    row: gl.Array[gl.ctypes.c_int, 16, 3]


@gl.message
class Welcome:
    id: gl.ctypes.c_int
    row_count: gl.ctypes.c_int
    time_sent: float
    rows: gl.Array[Row, "row_count"]  # one array of structs; list[Row] would be a list of objects
    leaves: gl.Array[gl.ctypes.c_int, 16]


def routing_table(id, count):
    """The rows of a node's routing table: for each prefix of an identifier, the node to contact."""
    rows = np.zeros(count, dtype=gl.messages.message_dtype(Row))
    rows["which_row"] = np.arange(count)
    rows["row"] = id * 1000 + rows["which_row"][:, None, None] * 100 + np.arange(48).reshape(16, 3)
    return rows


@gl.process
def node(me, guests):
    me.listen(PORT)
    for _ in range(int(guests)):
        guest, join = me.wait(Join)
        rows = routing_table(join.id, join.rows_wanted)
        guest.send(Welcome(join.id, len(rows), me.now(), rows, join.id - 8 + np.arange(16)))


@gl.process
def guest(me, host, id, rows):
    node = me.connect(host, PORT)
    node.send(Join(int(id), int(rows)))
    welcome = node.wait(Welcome, timeout=60)
    assert welcome.time_sent <= me.now() and np.array_equal(welcome.rows, routing_table(int(id), int(rows)))
    print(f"node {welcome.id} is welcome: {welcome.row_count} rows, leaves {welcome.leaves[0]} to {welcome.leaves[-1]}")


if __name__ == "__main__":
    gl.run_processes()
