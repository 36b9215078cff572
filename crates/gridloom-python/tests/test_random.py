"""Random generators: the program is warned if calls draw equal numbers; functions of modules use the generator of their process."""

from test_by_value import printed

PROGRAM = """
import functools, random, warnings
import gridloom as gl
import numpy as np
from numpy.random import rand
from random import gauss

new, old, own = np.random.default_rng(1), np.random.RandomState(1), random.Random(1)

def of_new(_=0):
    return new.random()

def of_old(_=0):
    return old.rand()

def of_own(_=0):
    return own.random()

def of_modules(_=0):
    return gauss(0, 1), rand()

def draw(generator):
    return generator.random()

def seeded():
    return np.random.default_rng(3)

def draw_default(_, generator=seeded()):
    return generator.random()

def draw_given(_, generator):
    return generator.random()

def warned(make):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        values = make()
    assert all((one.category, one.filename) == (gl.RandomStateWarning, __file__) for one in told), told
    return len(told), len(set(values)) == len(values)

if __name__ == "__main__":
    with gl.local(servers=1) as grid:
        for function in (of_new, of_old, of_own):
            assert warned(lambda: list(grid.map(function, range(1))))[0] == 0
            assert warned(lambda: [grid.run(function).get() for _ in range(3)])[0] == 1
            assert warned(lambda: [grid.run(function).get()])[0] == 0
        for generator in (seeded(), np.random.RandomState(1), random.Random(1)):
            assert warned(lambda: [grid.run(draw, generator).get() for _ in range(3)]) == (1, False)
        for one in (functools.partial(draw_given, generator=seeded()), draw_default, lambda _, mine=seeded(): mine.random()):
            assert warned(lambda: list(grid.map(one, range(3)))) == (1, False)
        with gl.Executor(grid=grid) as executor:
            mine = seeded()
            assert warned(lambda: list(executor.map(lambda _: mine.random(), range(3))))[0] == 1
        assert warned(lambda: [gl.Executor(grid=grid, initializer=draw, initargs=(seeded(),)).shutdown()])[0] == 1

        # No warning: each call has its own generator, or the program drew numbers between the calls.
        seeds = np.random.SeedSequence(1).spawn(4)
        assert warned(lambda: list(grid.map(lambda seed: np.random.default_rng(seed).random(), seeds))) == (0, True)
        assert warned(lambda: list(grid.map(draw, map(np.random.default_rng, seeds), chunksize=2))) == (0, True)
        assert warned(lambda: [grid.run(draw, seeded()).get() for _ in range(2)]) == (0, False)
        one = seeded()
        assert warned(lambda: [(grid.run(draw, one).get(), one.random())[0] for _ in range(2)]) == (0, True)

        # Functions of modules use the generators of the worker.
        assert warned(lambda: list(grid.map(of_modules, range(4)))) == (0, True)
        for function in (random.random, np.random.rand, random.SystemRandom().random):
            assert warned(lambda: [grid.run(function).get() for _ in range(3)]) == (0, True)
        warnings.simplefilter("error", gl.RandomStateWarning)
        try:
            again = seeded()
            grid.run(draw, again).get(), grid.run(draw, again)
        except gl.RandomStateWarning as error:
            print(error)
"""


def test_a_generator_that_is_sent_to_several_calls_is_reported_once(program, tmp_path):
    (text,) = printed(PROGRAM, tmp_path)
    assert text.startswith("a random generator (PCG64) is sent to several calls, and each of them draws the same numbers")
