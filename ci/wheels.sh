#!/usr/bin/env bash
# Build the sdist, from it a wheel per CPython and the pure wheel, and test each as installed.
#
#   ci/wheels.sh              every CPython 3.10 to 3.13 found (PATH, pyenv)
#   ci/wheels.sh 3.11 3.12    these only, and they must be there
#   ci/wheels.sh oldest       the oldest one found, and pure only from the pure wheel, which saves a third
#
# The results stay in dist/. Each wheel goes into a clean environment outside the tree, and the suite that
# the sdist ships runs there, compiled and pure, without the tests of the benchmarks, which are in no wheel.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# Print an interpreter of version $1, or nothing.
find_python() {
  local python
  for python in ${PYTHON:-} "python$1" python3 python \
    "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1."*/bin/python "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1"/bin/python; do
    if [ "$(version_of "$python")" = "$1" ]; then
      printf '%s\n' "$python"
      return
    fi
  done
}

if [ $# -gt 0 ] && [ "$1" != oldest ]; then wanted="$*"; else wanted="3.10 3.11 3.12 3.13"; fi
versions="" pythons=()
for version in $wanted; do
  python=$(find_python "$version")
  if [ -n "$python" ]; then
    versions="$versions $version"
    pythons+=("$python")
    if [ "${1:-}" = oldest ]; then break; fi
  elif [ $# -gt 0 ] && [ "$1" != oldest ]; then
    fail "no CPython $version found"
  fi
done
[ ${#pythons[@]} -gt 0 ] || fail "no CPython 3.10 to 3.13 found"
say "building and testing for CPython$versions"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$PWD

# Make the environment $work/$1 on interpreter $2. Sets $py.
fresh_venv() {
  "$2" -m venv "$work/$1"
  py=$(venv_python "$work/$1")
  quietly "$py" -m pip install -q -U pip
}

# The one file of dist/ that matches.
product() {
  set -- "$root"/dist/$1
  if [ $# -ne 1 ] || [ ! -e "$1" ]; then fail "expected one such file, found: $*"; fi
  printf '%s\n' "$1"
}

fresh_venv tools "${pythons[0]}"
tools=$py
quietly "$tools" -m pip install -q build
rm -rf dist/mcpfast-*

say "sdist"
MCPFAST_BUILD_EXTENSION=no quietly "$tools" -m build --sdist --outdir dist
sdist=$(product 'mcpfast-*.tar.gz')
"$tools" ci/check_dist.py "$sdist"
# What the sdist ships, without the package: nothing here may depend on the source tree.
mkdir "$work/area"
tar -xzf "$sdist" -C "$work/area" --strip-components=1
rm -rf "$work/area/src"

# Build the wheel called $1 for interpreter $2, with MCPFAST_BUILD_EXTENSION=$3, and install it. Sets $py.
build_and_install() {
  local name=$1 python=$2 mode=$3 pattern wheel
  say "wheel: $name"
  fresh_venv "$name" "$python"
  if [ "$mode" = no ]; then
    pattern='mcpfast-*-py3-none-any.whl'
  else
    pattern="mcpfast-*-cp$(version_of "$python" | tr -d .)-*.whl"
  fi
  MCPFAST_BUILD_EXTENSION=$mode quietly "$py" -m pip wheel -q --no-deps -w dist "$sdist"
  wheel=$(product "$pattern")
  "$tools" ci/check_dist.py "$wheel"
  quietly "$py" -m pip install -q "${wheel}[test,interop]"
}

# Run the shipped suite with the installed wheel; the arguments are settings for env.
suite() {
  say "suite as installed: $*"
  (cd "$work/area" && env "$@" "$py" -m pytest -p no:cacheprovider --ignore tests/benchmarks)
}

for i in "${!pythons[@]}"; do
  python=${pythons[$i]}
  version=$(version_of "$python")
  build_and_install "cp${version/./}" "$python" yes
  suite MCPFAST_NO_EXTENSIONS=0
  if [ "${1:-}" != oldest ]; then suite MCPFAST_NO_EXTENSIONS=1; fi
done
build_and_install pure "${pythons[0]}" no
suite MCPFAST_BUILD_EXTENSION=no

say "tested, in dist/:"
ls -1 dist
