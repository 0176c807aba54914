"""How fast mcpfast is, and beside whom. Nothing here is installed.

    pytest --benchmark               every case by pytest-benchmark, compared on this machine
    python -m benchmarks.report      the table and the chart of the README
    ci/bench.sh [SECTION]            the ratios against their targets; fails under 0.9 of one

=================  ===========================================================================
``fixtures.py``    the traffic: named, seeded, with the events that are in it
``contenders.py``  who runs: ours compiled, ours pure, and each peer as its docs and code use it
``ratios.py``      the engine: interleaved rounds, medians, ratios and their spread
``targets.py``     what is promised, as data
``gate.py``        measures a section and holds it against its targets
``report.py``      measures for the README; ``tables.py`` writes Markdown, ``chart.py`` the SVG
``machine.py``     what a figure was measured on
``codec/``         the codec's cases: for pytest (``bench_*.py``) and for the gate (``section.py``)
``e2e/``           servers as processes of their own, called by a load generator
=================  ===========================================================================
"""
