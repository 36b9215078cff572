"""A gRPC server of the three applications of bench/connectors_rpc.py, by grpcio. It is an ordinary server with reflection, without Gridloom.

    python bench/rpc_server.py --modules FOLDER --library libprotein.so     # prints its port; ends when its input ends

FOLDER has the modules that protoc makes of rpc_server.proto.
"""

import argparse
import ctypes
import importlib
import pathlib
import sys
from concurrent import futures

import grpc
import numpy as np
from grpc_reflection.v1alpha import reflection

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "examples" / "demo"))
import enhance  # noqa: E402

THREADS = 4


def servicers(messages, stubs, protein):
    class Chain(stubs.ChainServicer):
        def Multiply(self, request, context):
            shape = (request.n, request.n)
            return messages.Matrix(c=(np.array(request.a).reshape(shape) @ np.array(request.b).reshape(shape)).ravel())

    def image(request, values):
        return np.array(values).reshape(request.h, request.w)

    def cut(request, values):
        return np.array(values).reshape(request.h - request.top - request.bottom, request.w)

    class Enhance(stubs.EnhanceServicer):
        def Laplacian(self, request, context):
            return messages.Image(r=enhance.laplacian(image(request, request.f), request.top, request.bottom).ravel())

        def Sobel(self, request, context):
            return messages.Image(r=enhance.sobel(image(request, request.f), request.top, request.bottom).ravel())

        def Sharpen(self, request, context):
            given = image(request, request.f), cut(request, request.g), request.top, request.bottom
            return messages.Image(r=enhance.sharpen(*given).ravel())

        def Smooth(self, request, context):
            mean, largest = enhance.smooth(image(request, request.f), request.top, request.bottom)
            return messages.Mean(r=mean.ravel(), largest=largest)

        def Larger(self, request, context):
            return messages.Number(largest=enhance.larger(request.a, request.b))

        def Mask(self, request, context):
            return messages.Image(r=enhance.mask(image(request, request.f), image(request, request.g), request.largest).ravel())

        def Combine(self, request, context):
            given = image(request, request.f), cut(request, request.g), request.top, request.bottom
            return messages.Image(r=enhance.combine(*given).ravel())

        def Power(self, request, context):
            return messages.Image(r=enhance.power(image(request, request.f)).ravel())

    def pointer(array):
        return array.ctypes.data_as(ctypes.POINTER(ctypes.c_double))

    class Protein(stubs.ProteinServicer):
        def Anneal(self, request, context):
            kinds, states, energies = np.array(request.kinds), np.array(request.states), np.zeros(request.chains)
            protein.protein_anneal(
                request.n, request.chains, pointer(kinds), request.sweeps, ctypes.c_double(request.temperature),
                ctypes.c_long(request.seed), ctypes.c_long(request.round), pointer(states), pointer(energies),
            )  # fmt: skip
            return messages.Annealed(states=states, energies=energies)

        def Cross(self, request, context):
            kinds, mothers, fathers = (np.array(one) for one in (request.kinds, request.mothers, request.fathers))
            states = np.zeros_like(mothers)
            protein.protein_cross(
                request.n, request.chains, pointer(kinds), ctypes.c_long(request.seed), ctypes.c_long(request.round),
                request.half, pointer(mothers), pointer(fathers), pointer(states),
            )  # fmt: skip
            return messages.Crossed(states=states)

    return {"Chain": Chain(), "Enhance": Enhance(), "Protein": Protein()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modules", type=pathlib.Path, required=True)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    options = parser.parse_args()
    sys.path.insert(0, str(options.modules))
    messages, stubs = (importlib.import_module(f"rpc_server_pb2{suffix}") for suffix in ("", "_grpc"))
    # A request with two matrices is larger than the 4 MiB that a server of grpcio takes by default.
    server = grpc.server(futures.ThreadPoolExecutor(THREADS), options=[("grpc.max_receive_message_length", -1)])
    names = [reflection.SERVICE_NAME]
    for name, servicer in servicers(messages, stubs, ctypes.CDLL(str(options.library))).items():
        getattr(stubs, f"add_{name}Servicer_to_server")(servicer, server)
        names.append(f"applications.{name}")
    reflection.enable_server_reflection(names, server)
    port = server.add_insecure_port(f"{options.host}:0")
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None).wait()


if __name__ == "__main__":
    main()
