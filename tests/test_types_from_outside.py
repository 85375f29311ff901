"""The types of the installed package, as mypy and pyright of another project read them."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import hiermem

USER = Path(__file__).parent / "typed"
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return the interpreter of an environment into which the package was copied."""
    place = tmp_path_factory.mktemp("user")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "venv"], check=True)
    [packages] = (place / "venv" / "lib").glob("python*/site-packages")
    shutil.copytree(Path(hiermem.__file__).parent, packages / "hiermem")
    # What the package needs is where it is; of the package itself, that environment has no source.
    ours = Path(sysconfig.get_path("purelib"))
    for path in ours.iterdir():
        if not path.name.startswith(("hiermem", "_hiermem", "__editable__", "_editable")):
            (packages / path.name).symlink_to(path) if path.suffix != ".pth" else None
    return place / "venv" / "bin" / "python"


def run(checker: str, file: Path, python: Path, folder: Path) -> str:
    words = {
        "mypy": [sys.executable, "-m", "mypy", "--strict", "--python-executable", python,
                 "--config-file", "/dev/null", "--cache-dir", folder / "cache"],
        "pyright": [sys.executable, "-m", "pyright", "--pythonpath", python],
    }[checker]  # fmt: skip
    shutil.copy(file, folder)
    done = subprocess.run(
        [*words, file.name], cwd=folder, check=False, capture_output=True, text=True
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.timeout(280)
def test_a_users_code_has_the_types_that_it_says(checker, installed, tmp_path):
    """Broken, a user's strict check fails, or every call is of any type."""
    said = run(checker, USER / "right.py", installed, tmp_path)
    assert "Success: no issues" in said or "0 errors" in said, said


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
@pytest.mark.timeout(280)
def test_a_wrong_call_is_refused(checker, installed, tmp_path):
    """Broken, the types say nothing: ``py.typed`` is not there, or names are of any type."""
    said = run(checker, USER / "wrong.py", installed, tmp_path)
    lines = (USER / "wrong.py").read_text("utf-8").splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.startswith("    memory.")]
    assert len(wrong) == 4
    assert not [number for number in wrong if f"wrong.py:{number}:" not in said], said
