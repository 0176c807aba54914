# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twin of ``_json_py``: the looks at the bytes are taken in C, the slow ways are shared."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.ref cimport PyObject
from libc.math cimport isfinite

from enum import Enum

import orjson

from mcpfast import _json_py
from mcpfast.errors import ProtocolError

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object) noexcept
    void *PyUnicode_DATA(object) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object) noexcept
    Py_ssize_t PyList_GET_SIZE(object value)
    PyObject *PyList_GET_ITEM(object value, Py_ssize_t at)  # borrowed, unlike in cpython.list
    Py_ssize_t PyTuple_GET_SIZE(object value)
    PyObject *PyTuple_GET_ITEM(object value, Py_ssize_t at)

cdef extern from "_json_scan.h":
    """
    #define JSON_BYTES(b) ((const uint8_t *)PyBytes_AS_STRING(b))
    #define JSON_IS_PLAIN(o) (Py_IS_TYPE(o, &PyUnicode_Type) || Py_IS_TYPE(o, &PyLong_Type) \\
                              || Py_IS_TYPE(o, &PyBool_Type) || (o) == Py_None)
    #define JSON_IS_FLOAT(o) Py_IS_TYPE(o, &PyFloat_Type)
    #define JSON_DOUBLE(o) PyFloat_AS_DOUBLE(o)
    """
    bint JSON_IS_PLAIN(PyObject *item)
    bint JSON_IS_FLOAT(PyObject *item)
    double JSON_DOUBLE(PyObject *item)
    const unsigned char *JSON_BYTES(bytes data)
    int JSON_TOO_DEEP
    int json_scan(const unsigned char *p, size_t n, size_t max_depth)

cdef size_t max_depth = _json_py.MAX_DEPTH
cdef object options = _json_py.OPTIONS
cdef object orjson_loads = orjson.loads
cdef object orjson_dumps = orjson.dumps


def loads(data, /):
    """Read one JSON document in UTF-8, changing nothing in silence; see ``_json_py.loads``."""
    cdef object document = data
    cdef int found
    if type(data) is str and PyUnicode_IS_COMPACT_ASCII(data):
        # Its memory is its UTF-8, so neither the scan nor orjson needs a copy.
        found = json_scan(<const unsigned char *>PyUnicode_DATA(data), PyUnicode_GET_LENGTH(data), max_depth)
    else:
        if type(data) is not bytes:
            document = _json_py.to_bytes(data)
        found = json_scan(JSON_BYTES(document), PyBytes_GET_SIZE(document), max_depth)
    if found == JSON_TOO_DEEP:
        _json_py.refuse_depth(_json_py.PARSE_ERROR)
    if found:
        return _json_py.loads_exact(document if type(document) is bytes else _json_py.to_bytes(document))
    try:
        return orjson_loads(document)
    except ValueError as error:
        reason = _json_py.describe(error)
    # Raised out here, since orjson's error holds the whole document and would ride along as context.
    raise ProtocolError(reason, code=_json_py.PARSE_ERROR)


def dumps(value, /):
    """Write ``value`` as compact JSON in UTF-8, changing nothing in silence; see ``_json_py.dumps``."""
    try:
        document = orjson_dumps(value, None, options)
    except TypeError:
        document = None
    if document is None:
        document = _json_py.dumps_exact(value)
    check(value, 0)
    return document


# Looks at each value that orjson has written, which costs less than a look at each byte. Recursion is bounded: orjson
# goes no deeper than 254 levels. A container is held by a reference while its items are looked at; the items are
# borrowed, and its size is read anew for each, since the value of an Enum may be had by running Python code.
cdef int check(object value, size_t depth) except -1:
    cdef PyObject *key
    cdef PyObject *item
    cdef Py_ssize_t at = 0
    if depth == max_depth and isinstance(value, (dict, list, tuple)):
        _json_py.refuse_depth(_json_py.INTERNAL_ERROR)
    if isinstance(value, dict):
        while PyDict_Next(value, &at, &key, &item):
            check_item(item, depth + 1)
    elif isinstance(value, list):
        while at < PyList_GET_SIZE(value):
            check_item(PyList_GET_ITEM(value, at), depth + 1)
            at += 1
    elif isinstance(value, tuple):
        while at < PyTuple_GET_SIZE(value):
            check_item(PyTuple_GET_ITEM(value, at), depth + 1)
            at += 1
    elif isinstance(value, float):
        if not isfinite(PyFloat_AS_DOUBLE(value)):
            _json_py.refuse_nan()
    elif isinstance(value, Enum):
        check(value.value, depth)
    return 0


cdef inline int check_item(PyObject *item, size_t depth) except -1:
    if JSON_IS_PLAIN(item) or (JSON_IS_FLOAT(item) and isfinite(JSON_DOUBLE(item))):
        return 0
    return check(<object>item, depth)
