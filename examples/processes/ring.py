"""A token is passed around a ring of processes; `ring.c` and `ring.rs` are the same in C and in Rust.

    gridloom simulate -p examples/two-sites.toml -d examples/processes/ring.toml -- python examples/processes/ring.py
    gridloom deploy -d examples/processes/ring.toml -- python examples/processes/ring.py

Arguments of a process: its port, host and port of the next process, the number of rounds, and `first` for one process.
"""

import gridloom as gl


@gl.message(name="token")
class Token:
    round: gl.ctypes.c_int
    steps: gl.ctypes.c_long


@gl.process
def member(me, port, next_host, next_port, rounds, first=None):
    me.listen(int(port))
    next_one = me.connect(next_host, int(next_port), patience=30)
    if first:
        next_one.send(Token(1, 0))
    for seen in range(1, int(rounds) + 1):
        token = me.wait(Token, timeout=60)[1]
        token.steps += 1
        if first:
            if seen == int(rounds):
                print(f"the token went {token.steps} steps")
                return
            token.round += 1
        next_one.send(token)


if __name__ == "__main__":
    gl.run_processes()
