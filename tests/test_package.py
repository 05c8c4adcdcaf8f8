"""What `import orchid` is and costs, and that documents tell the truth."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import orchid

ROOT = Path(__file__).parents[1]


def test_public_names() -> None:
    assert orchid.__all__ == [
        "BlockDiagonalLinear",
        "ImplicitFilter",
        "OrchidBlock",
        "OrchidMixer",
        "OrchidMixer2d",
        "__version__",
        "create_mixer",
        "list_mixers",
    ]


def test_import_brings_no_extra() -> None:
    """Only torch, numpy, safetensors and what torch itself imports."""
    code = (
        "import json, sys, torch; before = set(sys.modules); import orchid; "
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    foreign = set(json.loads(run.stdout)) - set(sys.stdlib_module_names) - {"orchid", "torch", "numpy", "safetensors"}
    assert not foreign


def test_a_missing_extra_is_named() -> None:
    code = "import sys; sys.modules['typer'] = None; from orchid.__main__ import main; main()"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "pip install 'orchid-torch[train]'" in run.stderr


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


def runs_here(code: str) -> bool:
    """Return whether what code imports is installed; CI does not install timm."""
    wants = re.search(r"^import timm", code, flags=re.MULTILINE)
    return wants is None or importlib.util.find_spec("timm") is not None


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize(("command", "status"), [(["list"], 0), (["show", "nothing"], 2), (["--nothing"], 2)])
def test_one_process_of_several_has_the_same_exit_code(command: list[str], status: int) -> None:
    """It leaves without the end of the interpreter, which threads of the library abort now and then."""
    runs = [
        subprocess.run(
            [sys.executable, "-m", "orchid", *command],
            env=os.environ | more,
            capture_output=True,
            text=True,
            timeout=60,
        )
        for more in ({}, {"WORLD_SIZE": "2"})
    ]
    assert [run.returncode for run in runs] == [status] * 2
    assert runs[0].stdout == runs[1].stdout and runs[0].stderr == runs[1].stderr


@pytest.mark.parametrize("path", [p for p in DOCUMENTS if blocks(p, "python")], ids=lambda p: p.name)
def test_code_in_documents_runs(path: Path, tmp_path: Path) -> None:
    code = "\n".join(block for block in blocks(path, "python") if runs_here(block))
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=tmp_path)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(path: Path, tmp_path: Path) -> None:
    if not runs_here(path.read_text()):
        pytest.skip("needs timm")
    subprocess.run([sys.executable, str(path)], check=True, cwd=tmp_path)


def test_links_in_documents_lead_somewhere() -> None:
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_readme_is_up_to_date_with_the_results(tmp_path: Path) -> None:
    """`orchid report` changes nothing: no number was typed by hand."""
    from orchid.report.document import write_report

    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    for path in write_report(ROOT / "results", tmp_path):
        kept = ROOT / path.relative_to(tmp_path)
        # Pictures differ by font and library version from machine to machine; that they exist is what can be asked.
        assert kept.is_file()
        assert path.suffix == ".png" or path.read_text() == kept.read_text()
