# cython: language_level=3, binding=True, auto_pickle=False
# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The codec, compiled. ``_event_py``, ``_decoder_py``, ``_encoder_py`` and ``_writer_py`` are its reference, and
hold the full documentation. What is wrong with an argument is told by ``_common``, for both.

No Python code runs inside the loops here: the classes they build are out of the cycle collector's sight, and
arguments are taken apart before state is touched. So nothing can call back into an object half way.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8String, PyUnicode_DecodeUTF8
from libc.string cimport memchr, memcmp, memcpy, memset

from ._common import (
    DEFAULT_FLUSH_BYTES,
    DEFAULT_MAX_EVENT_BYTES,
    MAX_RETRY_MS,
    as_bytes,
    check_callable,
    check_retry,
    check_size,
    check_str,
    data_type_error,
    encode_name,
    encode_text,
    refuse_closed,
)
from ._event_py import ServerSentEvent as PureEvent

from mcpfast.errors import EventTooLarge, MalformedLine

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(object) noexcept
    void *PyUnicode_DATA(object) noexcept
    object PyUnicode_New(Py_ssize_t, Py_UCS4)
    int PyUnicode_Resize(PyObject **, Py_ssize_t) except -1
    long long PyLong_AsLongLongAndOverflow(object, int *) except? -1
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    const Py_ssize_t PY_SSIZE_T_MAX

cdef extern from "_scan.h":
    const char *mcpfast_find_eol(const char *p, const char *end) noexcept
    const char *mcpfast_find_eol_portable(const char *p, const char *end) noexcept
    size_t mcpfast_copy_ascii(char *to, const char *start, size_t n) noexcept
    size_t mcpfast_copy_ascii_portable(char *to, const char *start, size_t n) noexcept
    const char *MCPFAST_SCAN

cdef enum:
    LF = 0x0A
    CR = 0x0D

cdef const char *BOM = "\xef\xbb\xbf"
cdef str MESSAGE = "message"
cdef long long MAX_RETRY = MAX_RETRY_MS


# ---- a str or bytes object that grows -------------------------------------------------------------------

cdef struct Builder:
    PyObject *store       # owned: an object of `capacity` bytes that nobody else has seen, or NULL
    char *start           # of the bytes inside it
    Py_ssize_t size       # bytes filled so far
    Py_ssize_t capacity
    Py_ssize_t expected   # size of the last object handed over, up to MAX_EXPECTED: the next may be like it
    bint ascii            # store is a str, and all bytes are ASCII so far; else it is bytes

cdef enum:
    # Up to here a builder copies its content out and keeps its memory for the next; above, it hands over the
    # object itself. So this is also all that an idle builder holds.
    KEPT_CAPACITY = 1024
    # How much may be set aside at once for what is only expected. It is not touched before it is needed.
    MAX_EXPECTED = 4194304


cdef int builder_resize(Builder *self, Py_ssize_t capacity) except -1:
    try:
        if self.store == NULL:
            made = PyUnicode_New(capacity, 127) if self.ascii else PyBytes_FromStringAndSize(NULL, capacity)
            Py_INCREF(made)
            self.store = <PyObject *>made
        elif self.ascii:
            PyUnicode_Resize(&self.store, capacity)
        else:
            _PyBytes_Resize(&self.store, capacity)
    except MemoryError:
        builder_drop(self)
        raise
    if self.ascii:
        self.start = <char *>PyUnicode_DATA(<object>self.store)
    else:
        self.start = PyBytes_AS_STRING(<object>self.store)
    self.capacity = capacity
    return 0


cdef int builder_reserve(Builder *self, Py_ssize_t more) except -1:
    """Make room for ``more`` bytes, at least doubling, so that growing costs linear time."""
    cdef Py_ssize_t capacity
    if more <= self.capacity - self.size:
        return 0
    if more > PY_SSIZE_T_MAX // 4 - self.size:
        raise MemoryError
    capacity = max(2 * self.capacity, self.size + more, <Py_ssize_t>KEPT_CAPACITY)
    if KEPT_CAPACITY < capacity < self.expected:
        # Growing step by step would copy it all again, and makes malloc map fresh pages for each event.
        capacity = self.expected
    return builder_resize(self, capacity)


cdef int builder_add(Builder *self, const char *p, Py_ssize_t n) except -1:
    cdef Py_ssize_t done
    cdef Builder wider
    if n == 0:
        return 0
    builder_reserve(self, n)
    if self.ascii:
        done = mcpfast_copy_ascii(self.start + self.size, p, n)
        self.size += done
        if done == n:
            return 0
        # The rest is not ASCII: on to bytes.
        p += done
        n -= done
        memset(&wider, 0, sizeof(Builder))
        builder_resize(&wider, self.capacity)
        memcpy(wider.start, self.start, self.size)
        wider.size = self.size
        wider.expected = self.expected
        builder_drop(self)
        self[0] = wider
    memcpy(self.start + self.size, p, n)
    self.size += n
    return 0


cdef object builder_take(Builder *self):
    """Return the content, a str if the builder is ASCII, else bytes; and begin anew."""
    cdef PyObject *store = self.store
    cdef Py_ssize_t size = self.size
    if self.capacity <= KEPT_CAPACITY:
        self.size = 0
        if self.ascii:
            taken = PyUnicode_New(size, 127)
            if size:
                memcpy(PyUnicode_DATA(taken), self.start, size)
            return taken
        return PyBytes_FromStringAndSize(self.start, size)
    self.store = NULL
    self.size = self.capacity = 0
    self.expected = min(size, <Py_ssize_t>MAX_EXPECTED)
    if self.ascii:
        try:
            PyUnicode_Resize(&store, size)
        except MemoryError:
            Py_XDECREF(store)
            raise
    else:
        _PyBytes_Resize(&store, size)
    taken = <object>store
    Py_DECREF(taken)  # the builder's own reference
    return taken


cdef void builder_drop(Builder *self) noexcept:
    Py_XDECREF(self.store)
    self.store = NULL
    self.size = self.capacity = 0


# ---- arguments ------------------------------------------------------------------------------------------

cdef struct Text:         # UTF-8 that something else keeps alive
    const char *start
    Py_ssize_t size


cdef bint acquire(object value, Py_buffer *view) except -1:
    """Take the buffer of a contiguous bytes-like object. False: ``as_bytes`` knows what is wrong with it."""
    try:
        PyObject_GetBuffer(value, view, PyBUF_SIMPLE)
    except Exception:
        return False
    return True


cdef object utf8(object value, Text *text):
    """Point ``text`` at the UTF-8 of a str, and return what keeps it alive; None: a lone surrogate."""
    cdef object kept
    if PyUnicode_IS_COMPACT_ASCII(value):
        text.start = <const char *>PyUnicode_DATA(value)
        text.size = PyUnicode_GET_LENGTH(value)
        return value
    try:
        # Not PyUnicode_AsUTF8AndSize: it would leave a copy in the caller's object for good.
        kept = PyUnicode_AsUTF8String(value)
    except UnicodeEncodeError:
        return None
    text.start = PyBytes_AS_STRING(kept)
    text.size = PyBytes_GET_SIZE(kept)
    return kept


cdef object utf8_name(bint is_id, object value, Text *text):
    """As ``utf8``, for the value of an ``event`` or ``id`` field; raises if it cannot be one."""
    cdef object kept = None
    if isinstance(value, str):
        kept = utf8(value, text)
    if (
        kept is None
        or mcpfast_find_eol(text.start, text.start + text.size) != text.start + text.size
        or (is_id and memchr(text.start, 0, text.size) != NULL)
    ):
        encode_name("id" if is_id else "event", value)  # raises
    return kept


# ---- the event ------------------------------------------------------------------------------------------

cdef object json_loads = None


@cython.final
@cython.no_gc  # its fields are str, bytes and int: there is nothing to make a cycle of
@cython.freelist(1024)  # more than a chunk of 64 KiB holds of all but the smallest
cdef class ServerSentEvent:
    """ServerSentEvent(event="message", data="", id="", retry=None)
--

    One event of a stream; a value, compared and hashed by its four fields, and never changed.

    Args:
        event: the event's type. An empty one means ``"message"``, as the standard has it.
        data: the payload, lines joined with LF.
        id: the last event id.
        retry: reconnection time in milliseconds, or None.

    Raises:
        TypeError: a field is of another type.
        ValueError: ``retry`` is negative or over ``2**63 - 1``.

    Source: WHATWG HTML, 9.2.6 "Interpreting an event stream".
    """

    cdef:
        str _event
        str _id
        # The payload, at least one of them; the other is made when it is asked for. Off the wire it is text at once
        # if it is ASCII, which saves the second copy: such text and its UTF-8 are the same bytes.
        bytes _raw
        str _text
        long long _retry      # milliseconds; -1: none

    __match_args__ = ("event", "data", "id", "retry")

    # Not __cinit__, which would parse arguments for every event decoded.
    def __init__(self, event="message", data="", id="", retry=None):
        cdef str name, text, last_id
        if self._event is not None:
            return  # an event never changes
        name = check_str("event", event)
        text = check_str("data", data)
        last_id = check_str("id", id)
        milliseconds = check_retry(retry)
        self._retry = -1 if milliseconds is None else milliseconds
        self._id = last_id
        self._text = text
        self._event = name or MESSAGE

    @property
    def event(self):
        """The event's type, ``"message"`` unless the stream named one."""
        return self._event

    @property
    def data(self):
        """The payload as text; bytes that are no UTF-8 became U+FFFD. Decoded when first read."""
        if self._text is None and self._raw is not None:
            self._text = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(self._raw), PyBytes_GET_SIZE(self._raw), "replace")
        return self._text

    @property
    def id(self):
        """The last event id of the stream when this event was dispatched; it persists from event to event."""
        return self._id

    @property
    def retry(self):
        """The reconnection time in milliseconds that this event's own block set, or None."""
        return None if self._retry < 0 else self._retry

    @property
    def data_bytes(self):
        """The payload undecoded, just as it came, with its lines joined by LF.

        Raises:
            ValueError: the event was built from text with a lone surrogate.
        """
        if self._raw is None and self._text is not None:
            if PyUnicode_IS_COMPACT_ASCII(self._text):
                self._raw = PyBytes_FromStringAndSize(
                    <const char *>PyUnicode_DATA(self._text), PyUnicode_GET_LENGTH(self._text)
                )
            else:
                self._raw = encode_text("data", self._text)
        return self._raw

    def json(self):
        """Return the payload's JSON value.

        Raises:
            ValueError: it is no JSON.
        """
        global json_loads
        if json_loads is None:
            from mcpfast._json import loads

            json_loads = loads
        return json_loads(self._text if self._raw is None else self._raw)

    def encode(self):
        """Return the event as one frame of a stream; fields with default values are left out.

        Raises:
            ValueError: as :func:`~mcpfast.codec.encode_event`.
        """
        return encode_frame(
            self._text if self._raw is None else self._raw,
            None if self._event == MESSAGE else self._event,
            self._id if self._id else None,
            self.retry,
            NULL,
        )

    def __eq__(self, other):
        cdef ServerSentEvent event
        if type(other) is ServerSentEvent:
            event = <ServerSentEvent>other
            return (
                self._event == event._event
                and self._id == event._id
                and self._retry == event._retry
                and ((self._raw is not None and self._raw == event._raw) or self.data == event.data)
            )
        if type(other) is PureEvent:
            return (
                self._event == other.event
                and self.data == other.data
                and self._id == other.id
                and self.retry == other.retry
            )
        return NotImplemented

    def __hash__(self):
        return hash((self._event, self.data, self._id, self.retry))

    def __repr__(self):
        return f"ServerSentEvent(event={self._event!r}, data={self.data!r}, id={self._id!r}, retry={self.retry!r})"

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        # Names the public function, so that a process with the other implementation can load the pickle.
        from ._impl import build_event

        return build_event, (self._event, self._text if self._raw is None else self._raw, self._id, self.retry)


cdef inline ServerSentEvent new_event(str event, object payload, str last_id, long long retry):
    """Build a decoded event; its payload is bytes, or a str that is ASCII."""
    cdef ServerSentEvent self = ServerSentEvent.__new__(ServerSentEvent)
    self._event = event
    if type(payload) is str:
        self._text = <str>payload
    else:
        self._raw = <bytes>payload
    self._id = last_id
    self._retry = retry
    return self


def from_wire(str event not None, bytes raw not None, str id not None, retry):
    """Build a decoded event; the caller vouches for its fields."""
    return new_event(event, raw, id, -1 if retry is None else retry)


# ---- decoding -------------------------------------------------------------------------------------------

cdef enum LineKind:
    UNDECIDED   # fewer than the six bytes that tell "data: " from everything else; they are in _tail
    DATA        # of a data line: its value goes straight to _data
    COMMENT     # only counted
    OTHER       # collected in _tail


cdef class SSEDecoder:
    """SSEDecoder(*, max_event_bytes=16777216, strict=False)
--

    Turns an event stream, cut anywhere, into events. Owned by one task at a time.

    Args:
        max_event_bytes: how much of one event may be held: its data lines joined, plus the line being read,
            comments too. 16 MiB unless given.
        strict: make a line without a colon that is no field name a :class:`~mcpfast.errors.MalformedLine`.
            The standard ignores it.

    Raises:
        TypeError, ValueError: max_event_bytes is no int of at least 1.

    Source: WHATWG HTML, 9.2.5 "Parsing an event stream" and 9.2.6 "Interpreting an event stream".
    """

    cdef:
        Py_ssize_t _limit         # bytes; _joined + _line_size may not exceed it
        bint _strict
        bint _closed
        bint _skip_lf             # the last chunk ended in CR: drop one LF if it comes first
        int _bom                  # bytes of a BOM seen and held back at the start of the stream; -1 once past it
        object _fault             # (error class, its arguments) that every further call raises, or None

        # The unfinished line. Its bytes were searched for CR and LF once, and are never looked at again.
        LineKind _kind
        Py_ssize_t _line_size     # bytes of it seen, wherever they went; 0: no line is unfinished
        Builder _tail

        # The open block.
        bint _has_data            # a data line has ended
        Py_ssize_t _joined        # size of the data lines that ended, joined with LF
        const char *_slice        # where the only data line stands in the chunk being fed, _joined bytes; else NULL.
                                  # Valid inside feed() alone, which holds the chunk.
        Builder _data             # the joined data unless _slice has it, then the value of an unfinished data line
        str _event                # never empty
        str _id                   # the last event id as the next blank line will set it
        long long _retry_here     # milliseconds; -1: none

        str _last_event_id        # that of the last block that ended
        long long _retry          # milliseconds; -1: none

    def __cinit__(self):
        self._last_event_id = ""
        self._retry = -1
        self._reset()

    def __init__(self, *, max_event_bytes=DEFAULT_MAX_EVENT_BYTES, strict=False):
        self._limit = check_size("max_event_bytes", max_event_bytes)
        self._strict = strict

    def __dealloc__(self):
        builder_drop(&self._tail)
        builder_drop(&self._data)

    @property
    def last_event_id(self):
        """The last event id of the last block that ended; ``""`` until the stream sets one."""
        return self._last_event_id

    @property
    def retry(self):
        """The last reconnection time the stream set, in milliseconds; None until then.

        Digits beyond ``2**63 - 1`` are read as that.
        """
        return None if self._retry < 0 else self._retry

    def feed(self, chunk):
        """Decode the next piece of a stream and return the events it completes.

        Args:
            chunk: any contiguous bytes-like object, cut anywhere, even inside CRLF or a UTF-8 character. It is
                not kept after the call.

        Returns:
            Completed events in stream order; empty while an event is unfinished. Events that stand before a
            fault are returned, and the next call raises it.

        Raises:
            EventTooLarge: an event is over ``max_event_bytes``. Raised by the call after the one that met it,
                and by every further one until :meth:`reset`.
            MalformedLine: likewise, with ``strict``.
            MemoryError: likewise, where an event could not be built.
            RuntimeError: the decoder is closed.
            TypeError: chunk is no bytes-like object.
            BufferError: chunk is not contiguous in memory.
        """
        cdef:
            list events = []
            Py_buffer view
        if type(chunk) is not bytes:
            if acquire(chunk, &view):
                try:
                    self._feed(events, <const char *>view.buf, view.len)
                finally:
                    PyBuffer_Release(&view)
                return events
            chunk = as_bytes("chunk", chunk)
        self._feed(events, PyBytes_AS_STRING(chunk), PyBytes_GET_SIZE(chunk))
        return events

    def close(self, *, flush=False):
        """Say that the stream has ended. Closing twice is fine.

        Args:
            flush: return an event that the end of the stream cut off, as if its line and block had ended.
                The standard drops it, and with it the id its block would have set.

        Returns:
            The cut-off event if there is one and ``flush`` asks for it.

        Raises:
            EventTooLarge, MalformedLine, MemoryError: as :meth:`feed`.
        """
        cdef:
            list events = []
            bint flushing = flush
        if self._fault is not None:
            self._raise_fault()
        if self._closed:
            return events
        try:
            if self._bom > 0:
                self._extend(BOM, self._bom)
            if self._fault is None and flushing:
                if self._line_size:
                    self._finish_line()
                if self._fault is None:
                    self._dispatch(events)
        except MemoryError:
            self._fail(MemoryError, ())
        if self._fault is not None:
            self._raise_fault()
        self._clear()
        self._closed = True
        return events

    def reset(self):
        """Begin a new connection: forget what is unfinished, and any fault; keep last_event_id and retry."""
        self._reset()

    def __reduce__(self):
        raise TypeError("cannot pickle 'SSEDecoder' object")

    cdef void _reset(self) noexcept:
        self._fault = None
        self._closed = False
        self._bom = 0
        self._skip_lf = False
        self._clear()

    cdef void _clear(self) noexcept:
        builder_drop(&self._tail)
        builder_drop(&self._data)
        self._data.ascii = True
        self._line_size = 0
        self._kind = UNDECIDED
        self._id = self._last_event_id
        self._end_block()

    cdef inline void _end_block(self) noexcept:
        self._has_data = False
        self._joined = 0
        self._slice = NULL
        if self._event is not MESSAGE:
            self._event = MESSAGE
        self._retry_here = -1

    cdef int _fail(self, object kind, tuple facts) except -1:
        self._clear()
        self._fault = (kind, facts)
        return 0

    cdef int _raise_fault(self) except -1:
        kind, facts = self._fault
        raise kind(*facts)

    cdef int _feed(self, list events, const char *p, Py_ssize_t n) except -1:
        if self._fault is not None:
            self._raise_fault()
        if self._closed:
            refuse_closed("decoder")
        if n:
            try:
                self._decode(events, p, p + n)
            except MemoryError:
                self._fail(MemoryError, ())
        return 0

    # Each of the following returns at once when it has set _fault; _decode looks at it where that can be.

    cdef int _decode(self, list events, const char *p, const char *end) except -1:
        cdef:
            const char *eol
            Py_ssize_t n
            int held
        while self._bom >= 0:
            if p[0] != BOM[self._bom]:
                held = self._bom
                self._bom = -1
                self._extend(BOM, held)
                break
            self._bom += 1
            p += 1
            if self._bom == 3:
                self._bom = -1
            if p == end:
                return 0
        if self._fault is not None:
            return 0
        if self._skip_lf:
            self._skip_lf = False
            if p[0] == LF:
                p += 1

        if self._line_size and p < end:
            eol = mcpfast_find_eol(p, end)
            self._extend(p, eol - p)
            if eol == end or self._fault is not None:
                return 0
            self._finish_line()
            if self._fault is not None:
                return 0
            p = self._after(eol, end)

        # One search per line. p is the start of a line; nothing of it has been read.
        while p < end:
            eol = p if p[0] == LF else mcpfast_find_eol(p, end)
            n = eol - p
            if eol == end:
                self._extend(p, n)
                break
            if n == 0:
                self._dispatch(events)
            elif n > self._limit - self._joined:
                self._refuse_size()
                return 0
            else:
                self._line(p, n)
                if self._fault is not None:
                    return 0
            p = self._after(eol, end)

        if self._slice != NULL:
            self._keep_slice()
        return 0

    cdef inline const char *_after(self, const char *eol, const char *end) noexcept:
        """The start of the next line."""
        if eol[0] == CR:
            if eol + 1 == end:
                self._skip_lf = True
            elif eol[1] == LF:
                return eol + 2
        return eol + 1

    cdef int _extend(self, const char *p, Py_ssize_t n) except -1:
        """Add to the unfinished line, or begin one."""
        cdef Py_ssize_t missing
        if n > self._limit - self._joined - self._line_size:
            self._refuse_size()
            return 0
        if self._kind == UNDECIDED:
            missing = min(6 - self._line_size, n)
            builder_add(&self._tail, p, missing)
            self._line_size += missing
            if self._line_size < 6:
                return 0
            p += missing
            n -= missing
            self._decide()
        if self._kind == DATA:
            builder_add(&self._data, p, n)
        elif self._kind == OTHER:
            builder_add(&self._tail, p, n)
        self._line_size += n
        return 0

    cdef int _decide(self) except -1:
        """Six bytes of an unfinished line tell where its bytes go."""
        cdef const char *start = self._tail.start
        if memcmp(start, b"data:", 5) == 0:
            self._kind = DATA
            self._open_value()
            if start[5] != b" ":
                builder_add(&self._data, start + 5, 1)
            self._tail.size = 0
        elif start[0] == b":":
            self._kind = COMMENT
            self._tail.size = 0
        else:
            self._kind = OTHER
        return 0

    cdef int _finish_line(self) except -1:
        """The unfinished line has come to its end."""
        cdef Py_ssize_t n = self._tail.size
        cdef LineKind kind = self._kind
        self._line_size = 0
        self._kind = UNDECIDED
        if kind == DATA:
            self._has_data = True
            self._joined = self._data.size
        elif n:
            self._tail.size = 0
            self._line(self._tail.start, n)
            if self._slice != NULL:
                self._keep_slice()
            if self._tail.capacity > KEPT_CAPACITY:
                builder_drop(&self._tail)
        return 0

    cdef int _line(self, const char *p, Py_ssize_t n) except -1:
        """Read a whole line, not an empty one, given without its end."""
        cdef char first = p[0]
        if first == b"d":
            if n >= 5 and memcmp(p, b"data:", 5) == 0:
                skip_name(&p, &n, 5)
                return self._data_line(p, n)
            if n == 4 and memcmp(p, b"data", 4) == 0:
                return self._data_line(p, 0)
        elif first == b"e":
            if n >= 6 and memcmp(p, b"event:", 6) == 0:
                skip_name(&p, &n, 6)
                if n == 0 or (n == 7 and memcmp(p, b"message", 7) == 0):
                    self._event = MESSAGE
                else:
                    self._event = PyUnicode_DecodeUTF8(p, n, "replace")
                return 0
            if n == 5 and memcmp(p, b"event", 5) == 0:
                self._event = MESSAGE
                return 0
        elif first == b"i":
            if n >= 3 and memcmp(p, b"id:", 3) == 0:
                skip_name(&p, &n, 3)
                if memchr(p, 0, n) == NULL:
                    self._id = PyUnicode_DecodeUTF8(p, n, "replace")
                return 0
            if n == 2 and p[1] == b"d":
                self._id = ""
                return 0
        elif first == b"r":
            if n >= 6 and memcmp(p, b"retry:", 6) == 0:
                skip_name(&p, &n, 6)
                self._retry_line(p, n)
                return 0
            if n == 5 and memcmp(p, b"retry", 5) == 0:
                return 0
        elif first == b":":
            return 0
        if self._strict and memchr(p, b":", n) == NULL:
            self._fail(MalformedLine, (PyBytes_FromStringAndSize(p, min(n, 64)),))
        return 0

    cdef inline int _data_line(self, const char *p, Py_ssize_t n) except -1:
        if not self._has_data:
            self._has_data = True
            self._slice = p
            self._joined = n
            return 0
        self._open_value()
        builder_add(&self._data, p, n)
        self._joined = self._data.size
        return 0

    cdef int _open_value(self) except -1:
        """Make _data ready for the value of a further data line."""
        if self._slice != NULL:
            self._keep_slice()
        if self._has_data:
            builder_add(&self._data, b"\n", 1)
        return 0

    cdef int _keep_slice(self) except -1:
        """Copy the data line out of the chunk: it was not the only one, or the chunk ends before its block."""
        cdef const char *p = self._slice
        self._slice = NULL
        return builder_add(&self._data, p, self._joined)

    cdef void _retry_line(self, const char *p, Py_ssize_t n) noexcept:
        cdef long long value = 0
        cdef Py_ssize_t i
        cdef int digit
        if n == 0:
            return
        for i in range(n):
            digit = p[i] - 0x30
            if digit < 0 or digit > 9:
                return
            value = MAX_RETRY if value > (MAX_RETRY - digit) // 10 else value * 10 + digit
        self._retry = self._retry_here = value

    cdef inline int _dispatch(self, list events) except -1:
        """A blank line: the block has ended."""
        cdef object payload
        if self._last_event_id is not self._id:
            self._last_event_id = self._id
        if self._has_data:
            if self._slice != NULL:
                payload = payload_of(self._slice, self._joined)
            else:
                payload = builder_take(&self._data)
                if not self._data.ascii:
                    builder_drop(&self._data)
                    self._data.ascii = True
            events.append(new_event(self._event, payload, self._id, self._retry_here))
        self._end_block()
        return 0

    cdef int _refuse_size(self) except -1:
        # The first byte too many is where counting ends, so that the figure does not depend on the cuts.
        return self._fail(EventTooLarge, (self._limit + 1, self._limit))


cdef inline object payload_of(const char *p, Py_ssize_t n):
    """Copy a payload out of the chunk: as text if it is ASCII, else as bytes."""
    text = PyUnicode_New(n, 127)
    if <Py_ssize_t>mcpfast_copy_ascii(<char *>PyUnicode_DATA(text), p, n) == n:
        return text
    return PyBytes_FromStringAndSize(p, n)


cdef inline void skip_name(const char **p, Py_ssize_t *n, Py_ssize_t name) noexcept:
    """Step from the start of a line to its value, behind name and colon, and at most one space."""
    if n[0] > name and p[0][name] == b" ":
        name += 1
    p[0] += name
    n[0] -= name


# ---- encoding -------------------------------------------------------------------------------------------

def encode_event(data=None, *, event=None, id=None, retry=None):
    """Return one event as it goes on the wire, ready to be sent in one piece.

    Lines end in LF, which every receiver takes, and stand in the order event, id, retry, data. A space follows
    the colon, except that an empty event or id ends at it.

    Args:
        data: the payload, text or contiguous bytes-like. CR, LF and CRLF end its lines, and each line becomes a
            ``data:`` line, so receivers get LF for all three. Bytes are passed on as they are; what is no UTF-8 in
            them becomes U+FFFD at the receiver. None writes no such line, and receivers dispatch no event.
        event: the event's type; None writes none.
        id: the last event id; None writes none, ``""`` clears the receiver's.
        retry: reconnection time in milliseconds; None writes none.

    Returns:
        The frame, with the blank line that ends it. With no argument at all just that line.

    Raises:
        TypeError: a field is of another type (a bool is no retry).
        ValueError: CR or LF in event or id, NUL in id, a lone surrogate anywhere, a retry below 0 or over
            ``2**63 - 1``.
        BufferError: data is not contiguous in memory.

    Source: WHATWG HTML, 9.2.5 "Parsing an event stream".
    """
    return encode_frame(data, event, id, retry, NULL)


def encode_comment(text=""):
    """Return a comment, which receivers ignore: it keeps a quiet connection from being cut.

    Each line of ``text`` becomes a line of its own. No blank line follows, so the comment may also stand
    inside an event, and a receiver that reports something at every blank line has nothing to report.

    Raises:
        TypeError: text is no str.
        ValueError: it holds a lone surrogate.
    """
    return comment_frame(text, NULL)


cdef object encode_frame(object data, object event, object id, object retry, Builder *into):
    """Encode one event; into a new bytes object, or at the end of ``into`` and return None."""
    cdef:
        Py_buffer view
        Text text
        object kept
    if data is None:
        return build_frame(NULL, event, id, retry, into)
    if type(data) is str and PyUnicode_IS_COMPACT_ASCII(data):
        text.start = <const char *>PyUnicode_DATA(data)
        text.size = PyUnicode_GET_LENGTH(data)
        return build_frame(&text, event, id, retry, into)
    if type(data) is bytes:
        text.start = PyBytes_AS_STRING(data)
        text.size = PyBytes_GET_SIZE(data)
        return build_frame(&text, event, id, retry, into)
    if isinstance(data, str):
        kept = utf8(data, &text)
        if kept is None:
            encode_text("data", data)  # raises
        return build_frame(&text, event, id, retry, into)
    if acquire(data, &view):
        try:
            text.start = <const char *>view.buf
            text.size = view.len
            return build_frame(&text, event, id, retry, into)
        finally:
            PyBuffer_Release(&view)
    try:
        kept = as_bytes("data", data)
    except TypeError:
        raise data_type_error(data) from None
    text.start = PyBytes_AS_STRING(kept)
    text.size = PyBytes_GET_SIZE(kept)
    return build_frame(&text, event, id, retry, into)


cdef object build_frame(Text *data, object event, object id, object retry, Builder *into):
    cdef:
        Text name, last_id
        object kept_name, kept_id, frame  # the first two only keep what name and last_id point to
        char digits[20]
        int digit = 20                    # where in digits the number begins
        long long milliseconds = 0
        int overflow = 0
        Py_ssize_t size = 1               # the blank line
        Py_ssize_t data_size = 0
        Py_ssize_t head_size
        char *out
    if data != NULL:
        data_size = lines_size(6, data, False)
        size += data_size
        if id is None and retry is None and data_size == 6 + data.size + 1 and (event is None or event is MESSAGE):
            # Data of one line, and at most the event that MCP's streams have: the most common of all.
            head_size = 6 if event is None else 21
            frame = reserve_frame(head_size + data.size + 2, into, &out)
            memcpy(out, b"data: " if event is None else b"event: message\ndata: ", head_size)
            memcpy(out + head_size, data.start, data.size)
            memcpy(out + head_size + data.size, b"\n\n", 2)
            return frame
    if event is not None:
        kept_name = utf8_name(False, event, &name)
        size += field_size(6, &name)
    if id is not None:
        kept_id = utf8_name(True, id, &last_id)
        size += field_size(3, &last_id)
    if retry is not None:
        if type(retry) is not int:
            retry = check_retry(retry)
        milliseconds = PyLong_AsLongLongAndOverflow(retry, &overflow)
        if overflow or milliseconds < 0:
            check_retry(retry)  # raises
        while True:
            digit -= 1
            digits[digit] = <char>(0x30 + milliseconds % 10)
            milliseconds //= 10
            if milliseconds == 0:
                break
        size += 7 + (20 - digit) + 1

    frame = reserve_frame(size, into, &out)
    if event is not None:
        out = put_field(out, b"event: ", 6, &name)
    if id is not None:
        out = put_field(out, b"id: ", 3, &last_id)
    if retry is not None:
        memcpy(out, b"retry: ", 7)
        memcpy(out + 7, digits + digit, 20 - digit)
        out += 7 + (20 - digit)
        out[0] = LF
        out += 1
    if data != NULL:
        out = put_lines(out, data_size, b"data: ", 6, data, False)
    out[0] = LF
    return frame


cdef object comment_frame(object text, Builder *into):
    cdef:
        Text content
        object kept = None
        object frame
        Py_ssize_t size
        char *out
    if isinstance(text, str):
        kept = utf8(text, &content)
    if kept is None:
        encode_text("text", text)  # raises
    size = lines_size(2, &content, True)
    frame = reserve_frame(size, into, &out)
    put_lines(out, size, b": ", 2, &content, True)
    return frame


cdef inline object reserve_frame(Py_ssize_t size, Builder *into, char **out):
    """Point ``out`` at room for ``size`` bytes: in a new bytes object, which is returned, or at the end of ``into``."""
    if into == NULL:
        frame = PyBytes_FromStringAndSize(NULL, size)
        out[0] = PyBytes_AS_STRING(frame)
        return frame
    builder_reserve(into, size)
    out[0] = into.start + into.size
    into.size += size
    return None


cdef inline Py_ssize_t field_size(Py_ssize_t name, const Text *value) noexcept:
    """Size of a line; ``name`` counts the colon, and the space only stands before a value."""
    return name + (1 + value.size if value.size else 0) + 1


cdef inline char *put_field(char *out, const char *prefix, Py_ssize_t name, const Text *value) noexcept:
    cdef Py_ssize_t n = name + 1 if value.size else name
    memcpy(out, prefix, n)
    memcpy(out + n, value.start, value.size)
    out += n + value.size
    out[0] = LF
    return out + 1


cdef Py_ssize_t lines_size(Py_ssize_t prefix, const Text *text, bint bare) except -1:
    """Size of a text as lines behind a prefix; ``bare``: an empty line does without the prefix's space."""
    cdef:
        const char *p = text.start
        const char *end = p + text.size
        const char *eol
        Py_ssize_t size = 0
    if text.size > PY_SSIZE_T_MAX // 16:  # a text of line ends grows eightfold
        raise MemoryError
    while True:
        eol = mcpfast_find_eol(p, end)
        size += prefix + (eol - p) + 1
        if bare and eol == p:
            size -= 1
        if eol == end:
            return size
        p = eol + 1
        if eol[0] == CR and p < end and p[0] == LF:
            p += 1


cdef char *put_lines(
    char *out, Py_ssize_t size, const char *prefix, Py_ssize_t n, const Text *text, bint bare
) noexcept:
    """Write what ``lines_size`` gave the size of."""
    cdef:
        const char *p = text.start
        const char *end = p + text.size
        const char *eol
        bint single = size == n + text.size + 1  # then there is nothing to search for
    while True:
        eol = end if single else mcpfast_find_eol(p, end)
        if bare and eol == p:
            memcpy(out, prefix, n - 1)
            out += n - 1
        else:
            memcpy(out, prefix, n)
            memcpy(out + n, p, eol - p)
            out += n + (eol - p)
        out[0] = LF
        out += 1
        if eol == end:
            return out
        p = eol + 1
        if eol[0] == CR and p < end and p[0] == LF:
            p += 1


# ---- writing --------------------------------------------------------------------------------------------

cdef class EventWriter:
    """EventWriter(write, *, flush_bytes=65536, call_soon=None)
--

    Encodes events into one buffer and hands it on in one piece. Owned by one task at a time.

    The buffer goes to ``write`` at :meth:`flush`; once it holds ``flush_bytes``; and, with a loop's
    ``call_soon``, at the end of the loop's turn, for which it is asked at most once per turn. Without
    ``call_soon`` every call that adds something flushes.

    Nothing is lost in silence. What ``write`` raises reaches the caller of the flush (the loop's exception
    handler, if that was the loop), and the bytes it was given stay buffered, first in line for the next flush.
    A call with a bad argument leaves the buffer as it was. ``write`` may call back: what it sends follows what
    it is writing.

    Args:
        write: takes bytes, such as a transport's ``write``. Its result is ignored.
        flush_bytes: how many buffered bytes force a flush. 64 KiB unless given.
        call_soon: takes a callable to be called later, once, such as ``loop.call_soon``.

    Raises:
        TypeError: write or call_soon is not callable, or flush_bytes no int.
        ValueError: flush_bytes is less than 1.
    """

    cdef:
        object _write
        object _call_soon
        Py_ssize_t _flush_bytes
        Builder _buffer           # frames not yet handed to _write
        bint _closed
        bint _scheduled           # _call_soon was asked, and has not called yet
        bint _writing             # inside _write
        bint _again               # a flush was wanted inside _write: do it when _write returns

    def __init__(self, write, *, flush_bytes=DEFAULT_FLUSH_BYTES, call_soon=None):
        check_callable("write", write)
        if call_soon is not None:
            check_callable("call_soon", call_soon)
        self._flush_bytes = check_size("flush_bytes", flush_bytes)
        self._write = write
        self._call_soon = call_soon

    def __dealloc__(self):
        builder_drop(&self._buffer)

    @property
    def buffered(self):
        """How many bytes wait to be written."""
        return self._buffer.size

    def send(self, data=None, *, event=None, id=None, retry=None):
        """Send one event, as :func:`~mcpfast.codec.encode_event` encodes it.

        Raises:
            RuntimeError: the writer is closed.
            TypeError, ValueError, BufferError: as ``encode_event``.
        """
        if self._closed:
            refuse_closed("writer")
        if self._goes_straight():
            self._hand_over(<bytes>encode_frame(data, event, id, retry, NULL))
        else:
            encode_frame(data, event, id, retry, &self._buffer)
            self._added()

    def send_encoded(self, frame):
        """Send a frame that is encoded already, so that one event for many receivers is encoded once.

        Args:
            frame: what ``encode_event`` or ``encode_comment`` returned; it is not looked into.
        """
        if self._closed:
            refuse_closed("writer")
        if type(frame) is not bytes:
            frame = as_bytes("frame", frame)
        if self._goes_straight() and PyBytes_GET_SIZE(frame):
            self._hand_over(<bytes>frame)
        else:
            builder_add(&self._buffer, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
            self._added()

    def comment(self, text=""):
        """Send a comment, as :func:`~mcpfast.codec.encode_comment` encodes it."""
        if self._closed:
            refuse_closed("writer")
        comment_frame(text, &self._buffer)
        self._added()

    def flush(self):
        """Write what is buffered, in one piece. Also after :meth:`close`, if its own flush failed."""
        self._flush()

    def close(self):
        """Flush, then refuse everything but :meth:`flush`. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self._flush()

    def __reduce__(self):
        raise TypeError("cannot pickle 'EventWriter' object")

    def _turn_over(self):
        self._scheduled = False
        self._flush()

    cdef inline bint _goes_straight(self) noexcept:
        """Whether a frame may go to write without passing through the buffer."""
        return self._call_soon is None and self._buffer.size == 0 and not self._writing

    cdef int _added(self) except -1:
        if self._call_soon is None or self._buffer.size >= self._flush_bytes:
            self._flush()
        elif not self._scheduled:
            self._call_soon(self._turn_over)
            self._scheduled = True
        return 0

    cdef int _flush(self) except -1:
        if self._writing:
            self._again = True
        elif self._buffer.size:
            self._hand_over(builder_take(&self._buffer))
        return 0

    cdef int _hand_over(self, bytes piece) except -1:
        """Write a piece that stands before all that is buffered, and what its writing made urgent."""
        cdef bytes later
        while True:
            self._writing = True
            self._again = False
            try:
                self._write(piece)
            except BaseException:
                later = builder_take(&self._buffer)
                builder_add(&self._buffer, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
                builder_add(&self._buffer, PyBytes_AS_STRING(later), PyBytes_GET_SIZE(later))
                raise
            finally:
                self._writing = False
            if not self._again or self._buffer.size == 0:
                return 0
            piece = builder_take(&self._buffer)


# ---- for the tests --------------------------------------------------------------------------------------

SCAN = MCPFAST_SCAN.decode()  # which search for line ends serves here


def _copy_ascii(bytes data not None, Py_ssize_t start, Py_ssize_t stop, *, bint portable):
    """What is copied of ``data[start:stop]``, a byte of room behind it, by the loop that serves or the portable one."""
    cdef:
        Py_ssize_t n = stop - start
        bytes copy = b"?" * (n + 1)
        char *to = PyBytes_AS_STRING(copy)
        const char *base = PyBytes_AS_STRING(data)
    if not 0 <= start <= stop <= PyBytes_GET_SIZE(data):
        raise IndexError
    if portable:
        done = mcpfast_copy_ascii_portable(to, base + start, n)
    else:
        done = mcpfast_copy_ascii(to, base + start, n)
    return done, copy


def _find_eol(bytes data not None, Py_ssize_t start, Py_ssize_t stop, *, bint portable):
    """Where the first CR or LF of ``data[start:stop]`` stands, by the search that serves or the portable one."""
    cdef:
        const char *base = PyBytes_AS_STRING(data)
        const char *found
    if not 0 <= start <= stop <= PyBytes_GET_SIZE(data):
        raise IndexError
    if portable:
        found = mcpfast_find_eol_portable(base + start, base + stop)
    else:
        found = mcpfast_find_eol(base + start, base + stop)
    return found - base
