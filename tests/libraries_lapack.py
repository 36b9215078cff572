"""Checks of each routine of lapack.idl against SciPy, for each precision that it has."""

import numpy as np
import scipy.linalg
from libraries_blas import BOTH, COMPLEX, REAL, changed, checks_in, near, op, triangle, whole

CHECKS = {}
check = checks_in(CHECKS)


def solvable(r, n):
    """Returns a matrix that is far from singular."""
    return np.asarray(r(n, n) + 6 * np.eye(n), r.type)


def definite(r, n):
    a = r(n, n)
    return np.asarray(a @ a.conj().T + n * np.eye(n), r.type)


def unread(uplo, a):
    """Returns the same matrix in the triangle that is read, with other values in the other triangle."""
    return np.asarray(triangle(uplo, a) + 7 * (np.ones_like(a) - triangle(uplo, np.ones_like(a))), a.dtype)


def ok(info):
    assert info == 0


def orthonormal(q):
    near(q.conj().T @ q, np.eye(q.shape[1], dtype=q.dtype))


@check(BOTH, "?gesv")
def gesv(call, r, name):
    n, nrhs = r.sizes(2)
    a, b = solvable(r, n), r(n, nrhs)
    factors, pivots, x, info = call(a, b)
    ok(info)
    near(x, scipy.linalg.solve(a, b))
    near(factors, scipy.linalg.lu_factor(a)[0])
    near(pivots - 1, scipy.linalg.lu_factor(a)[1])


@check(BOTH, "?gesvx")
def gesvx(call, r, name):
    n, nrhs = r.sizes(2)
    trans, a, b = r.any("NTC"), solvable(r, n), r(n, nrhs)
    *_, x, rcond, ferr, berr, info = call(trans, a, b)
    ok(info)
    near(x, scipy.linalg.solve(op(trans, a), b))
    assert 0 < rcond <= 1.01 and len(ferr) == len(berr) == nrhs and (ferr < 1e-2).all()


@check(BOTH, "?getrf", "?getri", "?getrs")
def getrf(call, r, name):
    m, n = r.sizes(2)
    if name.endswith("rf"):
        a = r(m, n)
        factors, pivots, info = call(a)
        lower = np.tril(factors, -1)[:, : min(m, n)] + np.eye(m, min(m, n))
        near(permuted(a, pivots), lower @ np.triu(factors)[: min(m, n)])
        return
    a, trans, b = solvable(r, n), r.any("NTC"), r(n, m)
    factors, pivots = scipy.linalg.lu_factor(a)
    pivots = np.asarray(pivots + 1, np.int32)
    result, info = call(factors, pivots) if name.endswith("ri") else call(trans, factors, pivots, b)
    ok(info)
    near(result, scipy.linalg.inv(a) if name.endswith("ri") else scipy.linalg.solve(op(trans, a), b))


def permuted(a, pivots):
    a = a.copy()
    for row, other in enumerate(pivots - 1):
        a[[row, other]] = a[[other, row]]
    return a


@check(BOTH, "?trtrs")
def trtrs(call, r, name):
    n, nrhs = r.sizes(2)
    uplo, trans, diag, b = r.any("UL"), r.any("NTC"), r.any("NU"), r(n, nrhs)
    a = np.asarray(solvable(r, n) / 6, r.type)
    x, info = call(uplo, trans, diag, a, b)
    ok(info)
    near(x, scipy.linalg.solve(op(trans, triangle(uplo, a, diag)), b))


@check(BOTH, "?posv", "?potrf", "?potrs", "?potri")
def positive_definite(call, r, name):
    n, nrhs = r.sizes(2)
    uplo, a, b = r.any("UL"), definite(r, n), r(n, nrhs)
    factor = scipy.linalg.cholesky(a, lower=uplo == "L")
    if name.endswith("sv"):
        result, x, info = call(uplo, unread(uplo, a), b)
        near(result, changed(uplo, unread(uplo, a), factor))
        near(x, scipy.linalg.solve(a, b))
    elif name.endswith("rf"):
        result, info = call(uplo, unread(uplo, a))
        near(result, changed(uplo, unread(uplo, a), factor))
    elif name.endswith("rs"):
        x, info = call(uplo, factor, b)
        near(x, scipy.linalg.solve(a, b))
    else:
        result, info = call(uplo, factor)
        near(triangle(uplo, result), triangle(uplo, scipy.linalg.inv(a)))
    ok(info)


@check(BOTH, "?sysv")
@check(COMPLEX, "?hesv")
def sysv(call, r, name):
    n, nrhs = r.sizes(2)
    uplo, b = r.any("UL"), r(n, nrhs)
    a = np.asarray(whole("U", solvable(r, n), name[1] == "h"), r.type)
    _, _, x, info = call(uplo, unread(uplo, a), b)
    ok(info)
    near(x, scipy.linalg.solve(a, b))


@check(BOTH, "?gtsv")
def gtsv(call, r, name):
    n, nrhs = r.sizes(2)
    below, on, above, b = r(n - 1), r(n) + r.type(6), r(n - 1), r(n, nrhs)
    a = np.diag(on) + (np.diag(below, -1) + np.diag(above, 1) if n > 1 else 0)
    *_, x, info = call(below, on, above, b)
    ok(info)
    near(x, scipy.linalg.solve(a, b))


@check(BOTH, "?gbsv")
def gbsv(call, r, name):
    n, nrhs = r.sizes(2)
    kl, ku = int(r.random.integers(0, n)), int(r.random.integers(0, n))
    a = np.triu(np.tril(solvable(r, n), ku), -kl)
    band, b = np.zeros((2 * kl + ku + 1, n), r.type), r(n, nrhs)
    for i in range(n):
        for j in range(max(0, i - kl), min(n, i + ku + 1)):
            band[kl + ku + i - j, j] = a[i, j]
    _, _, x, info = call(kl, ku, band, b)
    ok(info)
    near(x, scipy.linalg.solve_banded((kl, ku), band[kl:], b))


@check(BOTH, "?geqrf")
@check(REAL, "?orgqr")
@check(COMPLEX, "?ungqr")
def geqrf(call, r, name):
    n, more = r.sizes(2)
    a = r(n + more, n)
    (factors, tau), triangular = scipy.linalg.qr(a, mode="raw")
    if name.endswith("qr"):
        q, info = call(np.asarray(factors, r.type), np.asarray(tau, r.type))
        orthonormal(q)
        near(q @ triangular[:n], a)
    else:
        made, its_tau, info = call(a)
        near(made, factors)
        near(its_tau, tau)
    ok(info)


@check(BOTH, "?gels")
def gels(call, r, name):
    m, n, nrhs = r.sizes(3)
    trans, a = r.any("NC" if r.is_complex else "NT"), r(m, n)
    # Guarantees full rank.
    a[: min(m, n), : min(m, n)] += 6 * np.eye(min(m, n), dtype=r.type)
    matrix = op(trans, a)
    b = r(max(m, n), nrhs)
    _, x, info = call(trans, a, b)
    ok(info)
    near(x[: matrix.shape[1]], scipy.linalg.lstsq(matrix, b[: matrix.shape[0]])[0])


@check(REAL, "?gelsd")
def gelsd(call, r, name):
    m, n, nrhs = r.sizes(3)
    a, b = r(m, n), r(max(m, n), nrhs)
    _, x, s, rank, info = call(a, b, 1e-5)
    ok(info)
    expected, _, its_rank, its_s = scipy.linalg.lstsq(a, b[:m], cond=1e-5)
    near(x[:n], expected)
    near(s, its_s)
    assert rank == its_rank


@check(REAL, "?syev", "?syevd")
@check(COMPLEX, "?heev", "?heevd")
def eigen_symmetric(call, r, name):
    (n,) = r.sizes(1)
    jobz, uplo = r.any("NVnv"), r.any("UL")
    a = np.asarray(whole("U", r(n, n), True), r.type)
    vectors, values, info = call(jobz, uplo, unread(uplo, a))
    ok(info)
    near(values, scipy.linalg.eigvalsh(a))
    if jobz in "Vv":
        orthonormal(vectors)
        near(a @ vectors, vectors * values)


@check(BOTH, "?geev")
def geev(call, r, name):
    (n,) = r.sizes(1)
    jobvl, jobvr, a = r.any("NV"), r.any("NV"), r(n, n)
    _, *values, left, right, info = call(jobvl, jobvr, a)
    ok(info)
    values = values[0] if r.is_complex else values[0] + 1j * values[1]
    near(np.sort_complex(values.round(3)), np.sort_complex(scipy.linalg.eigvals(a).round(3)))
    assert left.shape == (n * (jobvl == "V"),) * 2
    if jobvr == "V":
        right = right if r.is_complex else paired(right, values)
        near(a @ right, right * values)
    if jobvl == "V":
        left = left if r.is_complex else paired(left, values)
        near(left.conj().T @ a, values[:, None] * left.conj().T)


def paired(vectors, values):
    """Returns the complex eigenvectors of a real matrix."""
    whole_vectors = vectors.astype(values.dtype)
    for j in np.flatnonzero(values.imag > 0):
        whole_vectors[:, j] = vectors[:, j] + 1j * vectors[:, j + 1]
        whole_vectors[:, j + 1] = whole_vectors[:, j].conj()
    return whole_vectors


@check(BOTH, "?gesvd", "?gesdd")
def singular_values(call, r, name):
    m, n = r.sizes(2)
    jobu, a = r.any("ASN"), r(m, n)
    _, s, u, vt, info = call(jobu, jobu, a) if name.endswith("vd") else call(jobu, a)
    ok(info)
    near(s, scipy.linalg.svdvals(a))
    if jobu == "N":
        return
    least = min(m, n)
    assert (u.shape, vt.shape) == (((m, m), (n, n)) if jobu == "A" else ((m, least), (least, n)))
    orthonormal(u)
    orthonormal(vt.conj().T)
    near(u[:, :least] * s @ vt[:least], a)
