"""A client asks a server to multiply matrices: the program of section 4 of the report on GRAS (INRIA RR-5789).

`matmul.rs` is the same in Rust, and a client of one language can use a server of the other.

    gridloom simulate -p examples/two-sites.toml -d examples/processes/deployment.toml -- python examples/processes/matmul.py
    gridloom deploy -d examples/processes/deployment.toml -- python examples/processes/matmul.py
"""

import gridloom as gl
import numpy as np

PORT = 4002


@gl.message
class Multiply:
    a: gl.Array["float64", "m", "k"]
    b: gl.Array["float64", "k", "n"]


@gl.message
class Product:
    c: gl.Array["float64", "m", "n"]


@gl.message
class Done:
    pass


@gl.process
def server(me):
    me.listen(PORT)

    @me.on(Multiply)
    def multiply(client, work):
        with me.measure("multiply", mode="once"):
            product = work.a @ work.b
        client.send(Product(product))

    done = []
    me.on(Done, lambda client, _: done.append(client))
    while not done:
        me.handle()
    me.log("done")


@gl.process
def client(me, host, rounds):
    worker = me.connect(host, PORT)
    random = np.random.default_rng(1)
    for _ in range(int(rounds)):
        # Small integers: every order of summation gives the same result.
        a, b = random.integers(17, size=(2, 64, 64)).astype(float)
        worker.send(Multiply(a, b))
        assert np.array_equal(worker.wait(Product, timeout=60).c, a @ b)
    print(f"{rounds} products are right")
    worker.send(Done())


if __name__ == "__main__":
    gl.run_processes()
