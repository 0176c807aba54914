#!/usr/bin/env bash
# Measure mcpfast beside its peers, and hold the ratios against their targets (benchmarks/targets.py).
#
#   ci/bench.sh               every section
#   ci/bench.sh codec         one of them; --rounds N for other than 15 interleaved rounds
#
# Ends with 1 when a ratio is under 0.9 of its target, with 2 when it cannot be measured here.
# Only ratios count: they hold on a busy machine where plain times do not.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_venv
install_project bench,interop
build_extensions
exec "$py" -m benchmarks.gate "$@"
