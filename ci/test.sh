#!/usr/bin/env bash
# Run every gate: lint, types, and the suite twice, on the compiled modules and on pure Python.
#
#   ci/test.sh                all of it
#   ci/test.sh -k retry -x    the suite only, both ways; the arguments go to pytest
#
# PYTHON=python3.12 picks the interpreter. MCPFAST_BUILD_EXTENSION=no or MCPFAST_NO_EXTENSIONS=1, or a
# machine without a compiler, leave the pure half alone.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_venv
install_project test,interop,bench,dev
build_extensions

# The fuzzer has wheels for some platforms only; where it is absent its test is skipped and says so.
if ! "$py" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("atheris") is None)'; then
  "$py" -m pip install -q --only-binary :all: atheris >/dev/null 2>&1 || say "atheris does not install here"
fi

status=0
gate() {
  "$@" || status=$?
}

if [ $# -eq 0 ]; then
  say "lint and types"
  gate "$py" -m ruff check --quiet .
  gate "$py" -m ruff format --quiet --check .
  gate "$py" -m mypy --no-error-summary
fi

if [ "$extensions" = yes ] && [ "${MCPFAST_NO_EXTENSIONS:-0}" != 1 ]; then
  say "the suite, compiled, on $("$py" -V)"
  MCPFAST_NO_EXTENSIONS=0 gate "$py" -m pytest "$@"
  # The benchmarks' own tests run both codecs side by side, whatever the switch says: once is enough.
  if [ $# -eq 0 ]; then set -- --ignore tests/benchmarks; fi
elif [ "$extensions" = no ] && [ "${MCPFAST_BUILD_EXTENSION:-auto}" = auto ]; then
  warn_without_extensions
fi

say "the suite, pure, on $("$py" -V)"
MCPFAST_NO_EXTENSIONS=1 gate "$py" -m pytest "$@"

if [ "$status" -ne 0 ]; then printf '\nerror: at least one gate above failed\n' >&2; fi
exit "$status"
