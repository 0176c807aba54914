"""Check what a built sdist or wheel holds: ``python ci/check_dist.py FILE``."""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

SDIST_NEEDS = [
    r"pyproject\.toml",
    r"setup\.py",
    r"(README|CHANGELOG)\.md",
    r"LICENSE",
    r"ci/test\.sh",
    r"docs/codec\.md",
    r"src/mcpfast/_json_c\.pyx",
    r"src/mcpfast/codec/_codec_c\.pyx",
    r"src/mcpfast/codec/\w+\.h",
    r"tests/conftest\.py",
    r"tests/vectors/sse_decode\.json",
]
WHEEL_NEEDS = [r"mcpfast/__init__\.py", r"mcpfast/py\.typed", r"mcpfast-[^/]*/entry_points\.txt"]
COMPILED = [r"mcpfast/_json_c\.[^/]*(so|pyd)", r"mcpfast/codec/_codec_c\.[^/]*(so|pyd)"]


def faults(path: Path) -> list[str]:
    """Return what is wrong with the file, a line each."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
        is_pure = path.name.endswith("-py3-none-any.whl")
        needed = WHEEL_NEEDS if is_pure else WHEEL_NEEDS + COMPILED
        # Neither sources of the extensions nor anything beside the package (tests, benchmarks).
        unwanted = r".*\.(c|h|pyx|pxd|py[co])|(?!mcpfast[/-]).*" + (r"|.*\.(so|pyd)" if is_pure else "")
    else:
        with tarfile.open(path) as sdist:
            names = [name.partition("/")[2] for name in sdist.getnames()]
        needed = SDIST_NEEDS
        unwanted = r".*\.(c|so|pyd|py[co])"
    missing = [pattern for pattern in needed if not any(re.fullmatch(pattern, name) for name in names)]
    surplus = [name for name in names if re.fullmatch(unwanted, name) and name]
    return [f"missing: {pattern}" for pattern in missing] + [f"not wanted: {name}" for name in surplus]


if __name__ == "__main__":
    found = faults(Path(sys.argv[1]))
    for fault in found:
        print(f"{sys.argv[1]}: {fault}", file=sys.stderr)
    sys.exit(bool(found))
