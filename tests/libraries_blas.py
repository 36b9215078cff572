"""Checks of each routine of blas.idl against NumPy and SciPy, for each precision that it has."""

import numpy as np
import scipy.linalg

REAL, COMPLEX, BOTH = "ds", "zc", "dszc"
TYPES = {"d": np.float64, "s": np.float32, "z": np.complex128, "c": np.complex64}


def checks_in(registry):
    """Returns a decorator that registers checks in `registry`, by routine: a check's first argument calls the
    routine."""

    def check(precisions, *names):
        def register(function):
            for name in names:
                for letter in precisions:
                    real = letter.translate(str.maketrans("zc", "ds"))
                    registry[name.replace("?", letter).replace("!", real)] = (function, letter)
            return function

        return register

    return check


CHECKS = {}
check = checks_in(CHECKS)


class Random:
    """Random arrays of a precision, in both memory orders."""

    def __init__(self, letter, seed):
        self.random, self.type, self.is_complex = np.random.default_rng(seed), TYPES[letter], letter in COMPLEX

    def __call__(self, *shape):
        drawn = self.random.standard_normal(shape)
        if self.is_complex:
            drawn = drawn + 1j * self.random.standard_normal(shape)
        order = self.random.choice(["C", "F"])
        return np.asarray(drawn, self.type, order=order) if shape else self.type(drawn)

    def real(self):
        return self.type(self.random.standard_normal()).real

    def sizes(self, count):
        return (int(size) for size in self.random.integers(1, 9, count))

    def any(self, letters):
        return str(self.random.choice(list(letters)))


def near(got, expected):
    expected = np.asarray(expected)
    digits = 1e-3 if np.asarray(got).dtype in (np.float32, np.complex64) else 1e-9
    assert np.shape(got) == expected.shape
    np.testing.assert_allclose(got, expected, rtol=digits, atol=digits * max(1, np.abs(expected).max(initial=0)))


def op(trans, a):
    return {"N": a, "T": a.T, "C": a.conj().T}[trans.upper()]


def triangle(uplo, a, diag="N"):
    kept = np.triu(a) if uplo in "Uu" else np.tril(a)
    return kept - np.diag(np.diag(kept)) + np.eye(len(a)) if diag == "U" else kept


def whole(uplo, a, is_hermitian):
    """Returns the matrix of which a triangle is given; the other triangle is not read."""
    kept = triangle(uplo, a)
    other = kept.conj().T if is_hermitian else kept.T
    diagonal = np.diag(np.diag(a).real) if is_hermitian else np.diag(np.diag(a))
    return kept + other - np.diag(np.diag(kept)) - np.diag(np.diag(other)) + diagonal


def changed(uplo, old, new):
    """Returns the update of one triangle; the other one does not change."""
    return triangle(uplo, new) + old - triangle(uplo, old)


@check(REAL, "?dot")
def dot(call, r, name):
    (n,) = r.sizes(1)
    x, y = r(n), r(n)
    near(call(x, y), x @ y)


@check(COMPLEX, "?dotu", "?dotc")
def complex_dot(call, r, name):
    (n,) = r.sizes(1)
    x, y = r(n), r(n)
    near(call(x, y), np.vdot(x, y) if name.endswith("c") else x @ y)


@check(REAL, "?nrm2")
@check(COMPLEX, "!?nrm2")
def nrm2(call, r, name):
    x = r(*r.sizes(1))
    near(call(x), scipy.linalg.norm(x))


@check(REAL, "?asum")
@check(COMPLEX, "!?asum")
def asum(call, r, name):
    x = r(*r.sizes(1))
    near(call(x), np.abs(x.real).sum() + np.abs(x.imag).sum())


@check(BOTH, "i?amax")
def amax(call, r, name):
    x = r(*r.sizes(1))
    assert call(x) == np.argmax(np.abs(x.real) + np.abs(x.imag)) + 1


@check(REAL, "?rot")
def rot(call, r, name):
    (n,) = r.sizes(1)
    x, y, c, s = r(n), r(n), r(), r()
    near(call(x, y, c, s), (c * x + s * y, c * y - s * x))


@check(REAL, "?rotg")
def rotg(call, r, name):
    a, b = r(), r()
    root, _, c, s = call(a, b)
    near(np.array([[c, s], [-s, c]], r.type) @ np.array([a, b], r.type), [root, 0])


@check(BOTH, "?axpy")
def axpy(call, r, name):
    (n,) = r.sizes(1)
    alpha, x, y = r(), r(n), r(n)
    near(call(alpha, x, y), alpha * x + y)


@check(BOTH, "?scal")
def scal(call, r, name):
    alpha, x = r(), r(*r.sizes(1))
    near(call(alpha, x), alpha * x)


@check(COMPLEX, "?!scal")
def real_scal(call, r, name):
    alpha, x = r.real(), r(*r.sizes(1))
    near(call(alpha, x), alpha * x)


@check(BOTH, "?copy")
def copy(call, r, name):
    x = r(*r.sizes(1))
    near(call(x), x)


@check(BOTH, "?swap")
def swap(call, r, name):
    (n,) = r.sizes(1)
    x, y = r(n), r(n)
    near(call(x, y), (y, x))


@check(BOTH, "?gemv")
def gemv(call, r, name):
    m, n = r.sizes(2)
    trans, alpha, beta, a = r.any("NTCntc"), r(), r(), r(m, n)
    x, y = (r(size) for size in op(trans, a).shape[::-1])
    near(call(trans, alpha, a, x, beta, y), alpha * op(trans, a) @ x + beta * y)


@check(BOTH, "?gbmv")
def gbmv(call, r, name):
    m, n = r.sizes(2)
    kl, ku = int(r.random.integers(0, m)), int(r.random.integers(0, n))
    trans, alpha, beta, band = r.any("NTC"), r(), r(), r(kl + ku + 1, n)
    a = np.zeros((m, n), r.type)
    for i in range(m):
        for j in range(max(0, i - kl), min(n, i + ku + 1)):
            a[i, j] = band[ku + i - j, j]
    x, y = (r(size) for size in op(trans, a).shape[::-1])
    near(call(trans, kl, ku, alpha, band, x, beta, y), alpha * op(trans, a) @ x + beta * y)


@check(BOTH, "?trmv", "?trsv")
def triangular_vector(call, r, name):
    (n,) = r.sizes(1)
    uplo, trans, diag, a, x = r.any("UL"), r.any("NTC"), r.any("NU"), r(n, n) + 4 * np.eye(n, dtype=r.type), r(n)
    a = np.asarray(a / 4, r.type)
    matrix = op(trans, triangle(uplo, a, diag))
    near(call(uplo, trans, diag, a, x), matrix @ x if name.endswith("mv") else scipy.linalg.solve(matrix, x))


@check(BOTH, "?gemm")
def gemm(call, r, name):
    m, n, k = r.sizes(3)
    transa, transb, alpha, beta, c = r.any("NTCntc"), r.any("NTCntc"), r(), r(), r(m, n)
    a, b = r(*((m, k) if transa in "Nn" else (k, m))), r(*((k, n) if transb in "Nn" else (n, k)))
    near(call(transa, transb, alpha, a, b, beta, c), alpha * op(transa, a) @ op(transb, b) + beta * c)


@check(BOTH, "?symm")
@check(COMPLEX, "?hemm")
def symm(call, r, name):
    m, n = r.sizes(2)
    side, uplo, alpha, beta, b, c = r.any("LR"), r.any("UL"), r(), r(), r(m, n), r(m, n)
    a = r(*(2 * [m if side == "L" else n]))
    full = whole(uplo, a, name[1:] == "hemm")
    near(call(side, uplo, alpha, a, b, beta, c), alpha * (full @ b if side == "L" else b @ full) + beta * c)


@check(BOTH, "?syrk", "?syr2k")
@check(COMPLEX, "?herk", "?her2k")
def rank_k(call, r, name):
    n, k = r.sizes(2)
    is_hermitian, is_double = name[1:3] == "he", name.endswith("2k")
    other = "C" if is_hermitian else "T"
    uplo, trans = r.any("UL"), r.any("N" + other)
    alpha = r.real() if is_hermitian and not is_double else r()
    beta = r.real() if is_hermitian else r()
    a, b = (r(*((n, k) if trans == "N" else (k, n))) for _ in range(2))
    c = np.asarray(whole("U", r(n, n), True), r.type) if is_hermitian else r(n, n)
    left, right = (a, b) if trans == "N" else (op(other, a), op(other, b))
    if is_double:
        twin = np.conj(alpha) if is_hermitian else alpha
        new = alpha * left @ op(other, right) + twin * right @ op(other, left) + beta * c
        near(call(uplo, trans, alpha, a, b, beta, c), changed(uplo, c, new))
    else:
        near(call(uplo, trans, alpha, a, beta, c), changed(uplo, c, alpha * left @ op(other, left) + beta * c))


@check(BOTH, "?trmm", "?trsm")
def triangular_matrix(call, r, name):
    m, n = r.sizes(2)
    side, uplo, trans, diag, alpha, b = r.any("LR"), r.any("UL"), r.any("NTC"), r.any("NU"), r(), r(m, n)
    size = m if side == "L" else n
    a = np.asarray((r(size, size) + 4 * np.eye(size)) / 4, r.type)
    matrix = op(trans, triangle(uplo, a, diag))
    if name.endswith("sm"):
        matrix = scipy.linalg.inv(matrix)
    near(call(side, uplo, trans, diag, alpha, a, b), alpha * (matrix @ b if side == "L" else b @ matrix))


@check(REAL, "?ger")
@check(COMPLEX, "?geru", "?gerc")
def ger(call, r, name):
    m, n = r.sizes(2)
    alpha, x, y, a = r(), r(m), r(n), r(m, n)
    near(call(alpha, x, y, a), alpha * np.outer(x, y.conj() if name.endswith("c") else y) + a)


@check(REAL, "?symv")
@check(COMPLEX, "?hemv")
def symv(call, r, name):
    (n,) = r.sizes(1)
    uplo, alpha, a, x, beta, y = r.any("UL"), r(), r(n, n), r(n), r(), r(n)
    near(call(uplo, alpha, a, x, beta, y), alpha * whole(uplo, a, name[1:] == "hemv") @ x + beta * y)


@check(REAL, "?syr", "?syr2")
@check(COMPLEX, "?her", "?her2")
def rank_one(call, r, name):
    (n,) = r.sizes(1)
    uplo, x, y = r.any("UL"), r(n), r(n)
    a = np.asarray(whole("U", r(n, n), True), r.type)
    if name.endswith("2"):
        alpha = r()
        new = alpha * np.outer(x, y.conj()) + np.conj(alpha) * np.outer(y, x.conj()) + a
        near(call(uplo, alpha, x, y, a), changed(uplo, a, new))
    else:
        alpha = r.real()
        near(call(uplo, alpha, x, a), changed(uplo, a, alpha * np.outer(x, x.conj()) + a))
