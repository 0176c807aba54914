#!/usr/bin/env bash
# Install mcpfast from this tree, without extras, and hold a real conversation: `mcpfast demo`.
# The arguments go to it: ci/demo.sh --calls 5000
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_venv
install_project ""
build_extensions
if [ "$extensions" = no ] && [ "${MCPFAST_BUILD_EXTENSION:-auto}" = auto ]; then warn_without_extensions; fi
exec "$py" -m mcpfast demo "$@"
