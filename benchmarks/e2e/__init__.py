"""End to end: servers as processes, and one load generator that calls them and checks every answer.

``python -m benchmarks.e2e`` prints the tables, ``ci/bench.sh e2e`` holds what they say against its targets.

* ``wire``: the generator's HTTP; ``load``: sessions and the closed loop on it;
* ``servers``: the contenders as processes; ``peers``: their programs; ``bare``: the echo that is the
  measure of what a call costs; ``accounting``: what a process costs;
* ``scenarios``: one function per table; ``section``: those with targets, for the gate.
"""
