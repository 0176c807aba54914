# Shared by the scripts beside it: sourced, never run. Leaves the shell in the root of the tree.
# Bash 3.2 (macOS) is enough; on Windows the scripts run in Git's bash.

cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1

say() { printf '\n==> %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

# Run a command whose output matters only when it fails.
quietly() {
  local log status=0
  log=$(mktemp)
  "$@" >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    cat "$log" >&2
    printf 'error: status %s from: %s\n' "$status" "$*" >&2
  fi
  rm -f "$log"
  return "$status"
}

# Print "3.12" for an interpreter that runs and can make environments; fail for one that cannot
# (a pyenv shim without its version, a Debian python3 without python3-venv).
version_of() {
  "$1" -c 'import ensurepip, sys, venv; print("%d.%d" % sys.version_info[:2])' 2>/dev/null | tr -d '\r'
}

is_supported() {
  case $1 in 3.[0-9] | "") return 1 ;; 3.*) return 0 ;; *) return 1 ;; esac
}

# Print the interpreter to work with: $PYTHON, or the newest one. 3.10 comes last, as the official
# SDK, which the interop tests talk to, needs 3.11.
pick_python() {
  local python
  for python in ${PYTHON:-python3.13 python3.12 python3.11 python3 python python3.10}; do
    if is_supported "$(version_of "$python")"; then
      printf '%s\n' "$python"
      return
    fi
  done
  fail "no CPython 3.10 or newer with venv found (looked for ${PYTHON:-python3.13 to python3.10, python3, python})"
}

# Print the interpreter inside an environment.
venv_python() {
  if [ -e "$1/Scripts/python.exe" ]; then printf '%s\n' "$1/Scripts/python.exe"; else printf '%s\n' "$1/bin/python"; fi
}

# Make .venv, or keep the one that is there unless $PYTHON asks for another version. Sets $py.
make_venv() {
  local python have
  py=$(venv_python .venv)
  have=$(version_of "$py" || true)
  if is_supported "$have" && { [ -z "${PYTHON:-}" ] || [ "$(version_of "$PYTHON")" = "$have" ]; }; then
    return
  fi
  python=$(pick_python)
  say "new .venv on Python $(version_of "$python")"
  "$python" -m venv --clear .venv
  py=$(venv_python .venv)
}

# Print one hash over the names and bytes of the given files and folders, and over the texts given with --text.
fingerprint() {
  "$py" - "$@" <<'PYTHON' | tr -d '\r'
import hashlib, pathlib, sys

seen = hashlib.sha256()
arguments = iter(sys.argv[1:])
for argument in arguments:
    if argument == "--text":
        seen.update(next(arguments).encode() + b"\0")
        continue
    path = pathlib.Path(argument)
    for file in sorted(p for p in path.rglob("*") if p.suffix in {".pyx", ".pxd", ".h"}) if path.is_dir() else [path]:
        seen.update(file.as_posix().encode() + b"\0" + (file.read_bytes() if file.exists() else b"absent") + b"\0")
print(seen.hexdigest())
PYTHON
}

# Install this tree into .venv, editable, with the given extras ("" or "test,dev"), beside those it was installed
# with before. Quick when nothing changed.
install_project() {
  local stamp=.venv/.mcpfast-installed want have="" extras extra missing=""
  want=$(fingerprint pyproject.toml setup.py ci/lib.sh --text "$PWD")
  if [ -e "$stamp" ]; then read -r have extras <"$stamp" || true; fi
  extras=${extras:-}
  for extra in ${1//,/ }; do
    case ",$extras," in *",$extra,"*) ;; *) missing=yes extras=${extras:+$extras,}$extra ;; esac
  done
  if [ "$have" = "$want" ] && [ -z "$missing" ]; then return; fi
  say "installing mcpfast${extras:+ with $extras}"
  quietly "$py" -m pip install -q -U pip
  quietly "$py" -m pip install -q -U 'setuptools>=77' 'Cython>=3.1,<4'
  # The extensions are built by build_extensions, which knows when that is needed.
  MCPFAST_BUILD_EXTENSION=no quietly "$py" -m pip install -q --no-build-isolation -e ".${extras:+[$extras]}"
  printf '%s %s\n' "$want" "$extras" >"$stamp"
}

# Print yes or no: whether this machine can compile extensions for $py.
has_compiler() {
  "$py" - <<'PYTHON' | tr -d '\r'
import os, pathlib, shlex, shutil, sysconfig

compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
header = pathlib.Path(sysconfig.get_path("include"), "Python.h")
# On Windows setuptools finds the compiler by itself, outside PATH.
print("yes" if os.name == "nt" or (shutil.which(shlex.split(compiler)[0]) and header.exists()) else "no")
PYTHON
}

# Leave in src/ the compiled modules that these very sources give, or none of this interpreter's.
# MCPFAST_BUILD_EXTENSION: yes, no, or auto (the default): yes where there is a compiler. Sets $extensions.
build_extensions() {
  local stamp=.venv/.mcpfast-extensions suffix built
  extensions=${MCPFAST_BUILD_EXTENSION:-auto}
  case $extensions in
    yes | no) ;;
    auto) extensions=$(has_compiler) ;;
    *) fail "MCPFAST_BUILD_EXTENSION is '$extensions', allowed are auto, yes and no" ;;
  esac
  suffix=$("$py" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))' | tr -d '\r')
  # The products are part of the stamp: one built by hand from other sources is not trusted.
  stamp_now() {
    built=$(find src -name "*$suffix" | sort)
    # shellcheck disable=SC2086
    fingerprint src setup.py pyproject.toml $built --text "$extensions $suffix ${CC:-} ${CFLAGS:-}"
  }
  if [ "$(stamp_now)" = "$(cat "$stamp" 2>/dev/null)" ]; then return; fi
  find src -name "*$suffix" -delete
  if [ "$extensions" = yes ]; then
    say "building the extensions"
    MCPFAST_BUILD_EXTENSION=yes quietly "$py" setup.py -q build_ext --inplace
  fi
  stamp_now >"$stamp"
}

warn_without_extensions() {
  say "WARNING: no C compiler, or no Python.h, for $("$py" -V): the compiled modules are neither built nor tested"
}
