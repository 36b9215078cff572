"""`gl.File`: files that travel with calls of any function."""

import os
import stat

import gridloom as gl
import pytest


@pytest.fixture(scope="module")
def grid():
    with gl.local(servers=1) as opened:
        yield opened


def shouted(file):
    with open(file) as opened:
        text = opened.read()
    made = file.path.with_name("shouted.txt")
    made.write_text(text.upper())
    return os.getcwd() != str(file.path.parent), file.path.name, gl.File(made)


def test_a_file_makes_the_round_trip(grid, tmp_path):
    path = tmp_path / "said.txt"
    path.write_text("go")
    path.chmod(0o640)
    is_elsewhere, name, made = grid.run(shouted, gl.File(path)).get()
    assert (is_elsewhere, name, made.path.name) == (True, "said.txt", "shouted.txt")
    assert made.path.read_text() == "GO"
    kept, folder = made.save(tmp_path), made.path.parent
    del made
    assert not folder.exists()
    assert kept == tmp_path / "shouted.txt" and kept.read_text() == "GO"
    assert path.read_text() == "go"


def test_a_received_file_is_removed_with_the_call(grid, tmp_path):
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    path.chmod(0o400)
    where, mode = grid.run(lambda file: (os.fspath(file), os.stat(file).st_mode), gl.File(path)).get()
    assert stat.S_IMODE(mode) == 0o600
    assert not grid.run(os.path.exists, where).get()


def test_a_file_that_is_not_there_is_reported_immediately(grid, tmp_path):
    with pytest.raises(FileNotFoundError, match="gridloom.File: there is no such file: '.*nowhere'"):
        gl.File(tmp_path / "nowhere")
    with pytest.raises(IsADirectoryError, match="pass its files"):
        gl.File(tmp_path)
    (tmp_path / "gone").touch()
    file = gl.File(tmp_path / "gone")
    (tmp_path / "gone").unlink()
    with pytest.raises(gl.ArgumentError, match=r"argument 1, of type File, cannot be pickled \(FileNotFoundError: .*gone"):
        grid.run(shouted, file)


def test_files_are_written_whole_or_not_at_all(tmp_path):
    from gridloom.common.file_writing import write, write_text

    def fails(file):
        file.write(b"a part")
        raise OSError("no space")

    path = tmp_path / "plan.json"
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="no space"):
        write(path, fails)
    assert not path.exists()
    write_text(path, "first")
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask()
    path.chmod(0o600)
    with pytest.raises(OSError, match="no space"):
        write(path, fails)
    assert path.read_text() == "first"
    write_text(link, "second")
    assert link.is_symlink() and path.read_text() == "second" and stat.S_IMODE(path.stat().st_mode) == 0o600
    write_text(os.devnull, "nothing")
    assert not os.path.isfile(os.devnull)
    assert sorted(tmp_path.iterdir()) == [link, path]
    with pytest.raises(FileNotFoundError, match="there is no such folder: '.*missing'"):
        write_text(tmp_path / "missing" / "x", "")


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_no_name_leads_out_of_the_folder():
    from gridloom.functions.file import _arrived

    for name in ("../x", "/etc/x", "..", "", "a/b"):
        with pytest.raises(ValueError, match="is not a file name"):
            _arrived(name, 0o600, b"")
