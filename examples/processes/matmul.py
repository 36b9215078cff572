"""A client has a server multiply matrices: processes that talk by messages, for real and in simulation.

    gridloom simulate -p examples/two-sites.toml -d examples/processes/deployment.toml -- python examples/processes/matmul.py
    gridloom deploy -d examples/processes/deployment.toml -- python examples/processes/matmul.py
"""

import gridloom as gl
import numpy as np

PORT = 4002


@gl.process
def server(me):
    me.listen(PORT)

    @me.on("multiply")
    def multiply(client, payload):
        a, b = np.frombuffer(payload).reshape(2, 64, 64)
        with me.measure("multiply", mode="once"):
            product = a @ b
        client.send("product", product.tobytes())

    done = []
    me.on("done", lambda client, payload: done.append(client))
    while not done:
        me.handle()
    me.log("done")


@gl.process
def client(me, host, rounds):
    worker = me.connect(host, PORT)
    random = np.random.default_rng(1)
    for _ in range(int(rounds)):
        a, b = random.random((2, 64, 64))
        worker.send("multiply", np.stack([a, b]).tobytes())
        product = np.frombuffer(worker.wait_for("product", timeout=60)).reshape(64, 64)
        assert np.array_equal(product, a @ b)
    print(f"{rounds} products are right")
    worker.send("done")


if __name__ == "__main__":
    gl.run_processes()
