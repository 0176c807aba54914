"""The codec's benchmarks.

====================  ========================================================================
``cases.py``          what is timed: one call per contender, its answer checked beforehand
``bench_decode.py``   decoding, per size, newline, shape and way of reading, for pytest
``bench_encode.py``   encoding of str and bytes, for pytest
``bench_writer.py``   ``EventWriter``: bursts of events into few writes, for pytest
``section.py``        the codec's part of the gate
====================  ========================================================================
"""
