"""The package as built and installed: its two switches, what it ships, and what happens to a broken extension."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import distribution
from pathlib import Path

import pytest

import mcpfast

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(mcpfast.__file__).parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
COMPILED_MODULES = ("_json_c", "codec._codec_c")

needs_build_tools = pytest.mark.skipif(
    importlib.util.find_spec("Cython") is None
    or importlib.util.find_spec("setuptools") is None
    or not (ROOT / "src").exists(),
    reason="needs the source tree, setuptools and Cython",
)


def python(code: str, *, path: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process; ``path`` goes first on its module path."""
    environment = {**os.environ, **env}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False, env=environment
    )


class TestRunTimeSwitch:
    SHOW = "from mcpfast import _json, codec; print(codec.IMPLEMENTATION, _json.IMPLEMENTATION)"

    def test_1_forbids_the_compiled_modules(self) -> None:
        assert python(self.SHOW, MCPFAST_NO_EXTENSIONS="1").stdout.split() == ["python", "python"]

    @pytest.mark.parametrize("value", ["0", ""], ids=["0", "empty"])
    def test_0_and_empty_allow_them(self, value: str) -> None:
        built = importlib.util.find_spec("mcpfast.codec._codec_c") is not None
        expected = "cython" if built else "python"
        assert python(self.SHOW, MCPFAST_NO_EXTENSIONS=value).stdout.split() == [expected, expected]

    @pytest.mark.parametrize("value", ["2", "yes", "true", " 1", "no"])
    def test_any_other_value_is_refused(self, value: str) -> None:
        result = python(self.SHOW, MCPFAST_NO_EXTENSIONS=value)
        assert result.returncode != 0
        assert f"ValueError: MCPFAST_NO_EXTENSIONS is {value!r}, allowed are 0 and 1" in result.stderr


class TestBrokenExtension:
    """A copy of the package whose compiled modules are no libraries."""

    @pytest.fixture
    def broken(self, tmp_path: Path) -> Path:
        shutil.copytree(PACKAGE, tmp_path / "mcpfast", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
        for module in COMPILED_MODULES:
            path = tmp_path / "mcpfast" / module.replace(".", "/")
            path.with_name(path.name + SUFFIX).write_bytes(b"this is no library")
        return tmp_path

    CODE = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from mcpfast import _json, codec\n"
        "    import mcpfast.cli\n"
        "print(codec.__file__, codec.IMPLEMENTATION, _json.IMPLEMENTATION, sep='\\n')\n"
        "for warning in caught: print(warning.category.__name__, str(warning.message).replace('\\n', ' '))\n"
    )

    def test_it_warns_once_with_the_words_of_the_loader_and_falls_back(self, broken: Path) -> None:
        result = python(self.CODE, path=broken, MCPFAST_NO_EXTENSIONS="0")
        file, codec, json, *warned = result.stdout.splitlines()
        assert Path(file).is_relative_to(broken)
        assert (codec, json) == ("python", "python")
        assert len(warned) == len(COMPILED_MODULES)
        for module in COMPILED_MODULES:
            prefix = f"RuntimeWarning mcpfast.{module} is installed but does not load, using pure Python: "
            [message] = [line for line in warned if line.startswith(prefix)]
            assert len(message) > len(prefix)  # what the loader said differs between systems

    def test_it_is_not_touched_when_extensions_are_forbidden(self, broken: Path) -> None:
        result = python(self.CODE, path=broken, MCPFAST_NO_EXTENSIONS="1")
        assert result.stdout.splitlines()[1:] == ["python", "python"]


class TestBuildSwitch:
    @pytest.fixture
    def tree(self, tmp_path: Path) -> Path:
        for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, tmp_path)
        shutil.copytree(
            ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("*.so", "*.pyd", "*.egg-info", "__pycache__")
        )
        return tmp_path

    @staticmethod
    def build(tree: Path, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
            cwd=tree,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    @staticmethod
    def products(tree: Path) -> list[Path]:
        return list(tree.rglob(f"*{SUFFIX}"))

    @needs_build_tools
    @pytest.mark.parametrize("value", ["1", "0", "YES", "true", "maybe"])
    def test_unknown_values_are_refused(self, tree: Path, value: str) -> None:
        result = self.build(tree, MCPFAST_BUILD_EXTENSION=value)
        assert result.returncode != 0
        assert f"MCPFAST_BUILD_EXTENSION is {value!r}, allowed are auto, yes and no" in result.stderr

    @needs_build_tools
    def test_no_builds_nothing(self, tree: Path) -> None:
        result = self.build(tree, MCPFAST_BUILD_EXTENSION="no")
        assert result.returncode == 0, result.stderr
        assert self.products(tree) == []
        assert list(tree.rglob("*.c")) == []

    @needs_build_tools
    @pytest.mark.skipif(sys.platform == "win32", reason="the compiler is not chosen by CC there")
    def test_yes_fails_with_the_compiler(self, tree: Path) -> None:
        result = self.build(tree, MCPFAST_BUILD_EXTENSION="yes", CC="false")
        assert result.returncode != 0
        assert self.products(tree) == []

    @needs_build_tools
    @pytest.mark.skipif(sys.platform == "win32", reason="the compiler is not chosen by CC there")
    @pytest.mark.parametrize("value", ["auto", ""], ids=["auto", "empty"])
    def test_auto_goes_on_without_when_the_compiler_fails(self, tree: Path, value: str) -> None:
        result = self.build(tree, MCPFAST_BUILD_EXTENSION=value, CC="false")
        assert result.returncode == 0, result.stderr
        assert self.products(tree) == []


class TestContents:
    def test_type_checkers_find_the_marker(self) -> None:
        assert (PACKAGE / "py.typed").is_file()

    def test_no_generated_c_lies_in_the_package(self) -> None:
        assert list(PACKAGE.rglob("*.c")) == []

    def test_metadata_names_licence_command_and_python(self) -> None:
        metadata = distribution("mcpfast")
        assert metadata.metadata["License-Expression"] == "MIT"
        assert metadata.metadata["Requires-Python"] == ">=3.10"
        assert [point.value for point in metadata.entry_points if point.group == "console_scripts"] == [
            "mcpfast.cli:main"
        ]

    def test_version_is_that_of_the_metadata(self) -> None:
        assert mcpfast.__version__ == distribution("mcpfast").version

    def test_no_product_of_a_build_is_under_version_control(self) -> None:
        if not (ROOT / ".git").exists() or shutil.which("git") is None:
            pytest.skip("not in a repository")
        listed = subprocess.run(
            ["git", "-c", f"safe.directory={ROOT}", "ls-files"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        ).stdout.splitlines()
        assert "pyproject.toml" in listed
        assert [name for name in listed if name.endswith((".c", ".so", ".pyd", ".pyc"))] == []
