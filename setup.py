"""Declare the compiled extensions; everything else is static in pyproject.toml.

MCPFAST_BUILD_EXTENSION=auto|yes|no decides whether they are built:
``auto`` (the default) builds them and goes on without if the compiler fails, ``yes`` fails with it,
``no`` leaves them out and gives a pure wheel.
"""

import os

from setuptools import Extension, setup

SOURCES = {
    "mcpfast._json_c": "src/mcpfast/_json_c.pyx",
    "mcpfast.codec._codec_c": "src/mcpfast/codec/_codec_c.pyx",
}


def extensions() -> list[Extension]:
    wanted = os.environ.get("MCPFAST_BUILD_EXTENSION") or "auto"
    if wanted not in {"auto", "yes", "no"}:
        raise SystemExit(f"MCPFAST_BUILD_EXTENSION is {wanted!r}, allowed are auto, yes and no")
    if wanted == "no":
        return []
    from Cython.Build import cythonize

    flags = [] if os.name == "nt" else ["-O3"]
    modules = [
        # The C lands in build/, away from the headers that stand beside its source.
        Extension(
            name,
            [source],
            include_dirs=[os.path.dirname(source)],
            extra_compile_args=flags,
        )
        for name, source in SOURCES.items()
    ]
    # force: C left over from another Cython or another commit is never reused.
    built: list[Extension] = cythonize(modules, force=True, build_dir="build", language_level=3)
    for module in built:
        module.optional = wanted == "auto"  # cythonize() would not pass it on
    return built


setup(ext_modules=extensions())
