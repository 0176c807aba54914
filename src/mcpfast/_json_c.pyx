# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twin of ``_json_py``: the looks at the bytes are taken in C, the slow ways are shared."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.ref cimport PyObject
from libc.math cimport isfinite

import orjson

from mcpfast import _json_py
from mcpfast.errors import ProtocolError

cdef extern from "_json_scan.h":
    """
    #define JSON_BYTES(b) ((const uint8_t *)PyBytes_AS_STRING(b))
    """
    const unsigned char *JSON_BYTES(bytes data)
    int JSON_TOO_DEEP
    int json_scan(const unsigned char *p, size_t n, size_t max_depth)
    int json_is_too_deep(const unsigned char *p, size_t n, size_t max_depth)
    int json_has_null(const unsigned char *p, size_t n)

cdef size_t max_depth = _json_py.MAX_DEPTH
cdef object options = _json_py.OPTIONS
cdef object orjson_loads = orjson.loads
cdef object orjson_dumps = orjson.dumps


def loads(data):
    """Read one JSON document in UTF-8, changing nothing in silence; see ``_json_py.loads``."""
    cdef bytes document = data if type(data) is bytes else _json_py.to_bytes(data)
    cdef int found = json_scan(JSON_BYTES(document), PyBytes_GET_SIZE(document), max_depth)
    if found == JSON_TOO_DEEP:
        _json_py.refuse_depth(_json_py.PARSE_ERROR)
    if found:
        return _json_py.loads_exact(document)
    try:
        return orjson_loads(document)
    except ValueError as error:
        reason = _json_py.describe(error)
    # Raised out here, since orjson's error holds the whole document and would ride along as context.
    raise ProtocolError(reason, code=_json_py.PARSE_ERROR)


def dumps(value):
    """Write ``value`` as compact JSON in UTF-8, changing nothing in silence; see ``_json_py.dumps``."""
    cdef bytes document = None
    try:
        document = orjson_dumps(value, None, options)
    except TypeError:
        pass
    if document is None:
        document = _json_py.dumps_exact(value)
    cdef size_t size = PyBytes_GET_SIZE(document)
    if json_is_too_deep(JSON_BYTES(document), size, max_depth):
        _json_py.refuse_depth(_json_py.INTERNAL_ERROR)
    if json_has_null(JSON_BYTES(document), size) and has_nan(value):
        _json_py.refuse_nan()
    return document


# Recursion is bounded: orjson has written this value, which it does down to 254 levels.
cdef bint has_nan(object value) except -1:
    cdef PyObject *key
    cdef PyObject *item
    cdef Py_ssize_t at = 0
    cdef type kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return False
    if kind is dict:
        while PyDict_Next(value, &at, &key, &item):
            if has_nan(<object>item):
                return True
        return False
    if kind is list:
        for element in <list>value:
            if has_nan(element):
                return True
        return False
    if kind is tuple:
        for element in <tuple>value:
            if has_nan(element):
                return True
        return False
    if kind is float:
        return not isfinite(PyFloat_AS_DOUBLE(value))
    return _json_py.has_nan(value)
