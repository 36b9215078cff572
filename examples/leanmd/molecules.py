"""A protein in water, read from files of GROMACS: the positions and charges of its sites, and which of them do not act on one another.

The force field is amber99sb-ildn with water of TIP4P-Ew: each water has four sites, the last of which has the charge of the oxygen.
"""

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

#: By type of the protein's atoms: distance at which the energy of two such atoms is 0, in Å, and depth of its well,
#: in kJ/mol. The file `ffnonbonded.itp` of amber99sb-ildn has the distances in nm.
TYPES = {
    **dict.fromkeys(("C", "CA", "CW", "CV", "CR", "CN", "CC", "CB", "C*"), (3.39966950842, 0.359824)),
    **dict.fromkeys(("N", "N2", "N3", "NA", "NB"), (3.24999852378, 0.71128)),
    **dict.fromkeys(("O", "O2"), (2.95992190115, 0.87864)),
    **dict.fromkeys(("S", "SH"), (3.56359487256, 1.046)),
    **dict.fromkeys(("H", "HS"), (1.06907846177, 0.0656888)),
    "CT": (3.39966950842, 0.4577296),
    "OH": (3.06647338784, 0.8803136),
    "HO": (0.0, 0.0),
    "HC": (2.64953278775, 0.0656888),
    "HA": (2.59964245953, 0.06276),
    "HP": (1.95997717991, 0.0656888),
    "H1": (2.47135304412, 0.0656888),
    "H4": (2.51055258772, 0.06276),
    "H5": (2.42146271591, 0.06276),
}
#: Sites of a water molecule, in order: distance, depth, charge. Horn et al., J. Chem. Phys. 120, 9665 (2004).
WATER = ((3.16435, 0.680946, 0.0), (0.0, 0.0, 0.52422), (0.0, 0.0, 0.52422), (0.0, 0.0, -1.04844))
KJ_IN_KCAL = 4.184
#: Factors of the two energies of atoms that three bonds join: van der Waals, Coulomb.
THREE_BONDS = (0.5, 1 / 1.2)


class FilesError(Exception):
    """The files are not in the format that this program reads."""


@dataclass
class Molecules:
    """All sites, in the order of the files."""

    #: Positions within the cube, Å: (sites, 3).
    at: np.ndarray
    #: Side of the cube, Å.
    length: float
    #: Charges in elementary charges.
    charge: np.ndarray
    #: Distances at which the energy is 0, Å.
    sigma: np.ndarray
    #: Depths of the wells, kcal/mol.
    depth: np.ndarray
    #: The molecule of each site: sites of one water molecule do not act on one another.
    molecule: np.ndarray
    #: Number of sites of the protein, which is one molecule and is first.
    protein: int
    #: Pairs of the protein's sites that bonds join, as ``lower * protein + higher``, ascending, and the factors of
    #: their energies.
    joined: np.ndarray
    parts: np.ndarray

    def factors(self, one, other):
        """Factors of van der Waals and Coulomb energy between these sites: (pairs, 2)."""
        factors = np.ones((len(one), 2))
        factors[(self.molecule[one] == self.molecule[other]) & (one >= self.protein)] = 0.0
        inside = np.flatnonzero((one < self.protein) & (other < self.protein))
        low, high = np.minimum(one[inside], other[inside]), np.maximum(one[inside], other[inside])
        key = low * self.protein + high
        place = np.minimum(np.searchsorted(self.joined, key), max(len(self.joined) - 1, 0))
        if len(self.joined):
            is_joined = self.joined[place] == key
            factors[inside[is_joined]] = self.parts[place[is_joined]]
        return factors


def read(gro, top):
    """The molecules of a box.

    Parameters
    ----------
    gro : path
        Positions. The box is a cube.
    top : path
        The protein's atoms, bonds and pairs. It is first in the box, and everything else is water.

    Raises
    ------
    FilesError
        If the files have another format, with the file and the mistake.
    """
    at, length = _positions(gro)
    sections = _sections(top)
    atoms = [line.split() for line in sections["atoms"]]
    unknown = sorted({atom[1] for atom in atoms} - set(TYPES))
    if unknown:
        raise FilesError(f"{top}: no parameters are known of atoms of type {', '.join(unknown)}")
    protein = len(atoms)
    waters, rest = divmod(len(at) - protein, len(WATER))
    if rest or waters < 0:
        raise FilesError(f"{gro}: {len(at)} sites are not the {protein} of {top} and waters of {len(WATER)}")
    of = np.array([(*TYPES[atom[1]], float(atom[6])) for atom in atoms] + list(WATER) * waters)
    molecule = np.concatenate([np.zeros(protein, int), 1 + np.repeat(np.arange(waters), len(WATER))])
    pairs = lambda name: [tuple(int(word) - 1 for word in line.split()[:2]) for line in sections[name]]  # noqa: E731
    joined, parts = _joined(protein, pairs("bonds"), pairs("pairs"))
    return Molecules(
        np.mod(at, length), length, of[:, 2], of[:, 0], of[:, 1] / KJ_IN_KCAL, molecule, protein, joined, parts
    )


def _positions(gro):
    lines = open(gro).read().splitlines()
    try:
        count = int(lines[1])
        # Numbers may have any number of digits, and residue and atom may have no space between them.
        at = np.array([line.split()[-3:] for line in lines[2 : 2 + count]], float)
        box = np.array(lines[2 + count].split(), float)
    except (IndexError, ValueError) as error:
        raise FilesError(f"{gro}: not a file of positions with the count in its second line: {error}") from None
    if len(box) != 3 or np.ptp(box) > 1e-6 * box[0]:
        raise FilesError(f"{gro}: the box {' '.join(lines[2 + count].split())} is not a cube")
    return 10 * at, 10 * float(box[0])


def _sections(top):
    """The lines of the first molecule's sections, without comments."""
    sections, name = defaultdict(list), None
    for line in open(top):
        line = line.split(";")[0].strip()
        if line.startswith("["):
            name = line.strip("[] ")
        elif line and not line.startswith("#") and name is not None:
            sections[name].append(line)
    if not sections["atoms"]:
        raise FilesError(f"{top}: no section [ atoms ]")
    return sections


def _joined(protein, bonds, pairs):
    """Sites that one or two bonds join do not act on one another; those that three join act in part, and are listed as pairs."""
    near = defaultdict(set)
    for one, other in bonds:
        near[one].add(other)
        near[other].add(one)
    parts = {tuple(sorted(pair)): THREE_BONDS for pair in pairs}
    for ends in near.values():
        parts.update({(one, other): (0.0, 0.0) for one in ends for other in ends if one < other})
    parts.update({tuple(sorted(bond)): (0.0, 0.0) for bond in bonds})
    keys = np.array([one * protein + other for one, other in parts], int)
    order = np.argsort(keys)
    return keys[order], np.array(list(parts.values()), float).reshape(-1, 2)[order]
