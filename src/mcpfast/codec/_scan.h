/* The two loops over bytes that the codec lives by.
 *
 * mcpfast_find_eol(p, end): the first CR or LF in [p, end), or end if there is none.
 *
 * mcpfast_copy_ascii(to, from, n): copies bytes as long as they are ASCII, and returns how many. Fewer than n
 * says that a byte over 127 is among the rest, though maybe not the next one. Writes nothing beyond to + n.
 *
 * Each variant reads only inside the range given. The names without a suffix are the variants that serve; the
 * portable ones are compiled everywhere and tested beside them.
 */
#ifndef MCPFAST_SCAN_H
#define MCPFAST_SCAN_H

#include <stdint.h>
#include <string.h>

#if defined(_MSC_VER)
#include <intrin.h>
#endif

/* SSE2 is part of x86-64, NEON of arm64: neither needs a check at run time. */
#if defined(__SSE2__) || defined(_M_X64)
#define MCPFAST_SSE2 1
#include <emmintrin.h>
#elif defined(__aarch64__) || defined(_M_ARM64)
#define MCPFAST_NEON 1
#include <arm_neon.h>
#endif

/* ---- portable: eight bytes in one word ---------------------------------------------------------------- */

/* Nonzero if a byte of `word` is `byte`. Which one is not told: carries make bits above the first match
 * unsure, and the byte order of the machine decides where "above" is. */
static inline uint64_t mcpfast_has_byte(uint64_t word, unsigned char byte)
{
    uint64_t x = word ^ (UINT64_C(0x0101010101010101) * byte);
    return (x - UINT64_C(0x0101010101010101)) & ~x & UINT64_C(0x8080808080808080);
}

static inline const char *mcpfast_find_eol_portable(const char *p, const char *end)
{
    while (end - p >= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        if (mcpfast_has_byte(word, '\n') | mcpfast_has_byte(word, '\r'))
            break;
        p += 8;
    }
    while (p < end && *p != '\n' && *p != '\r')
        p++;
    return p;
}

static inline size_t mcpfast_copy_ascii_portable(char *to, const char *from, size_t n)
{
    size_t done = 0;
    while (n - done >= 8) {
        uint64_t word;
        memcpy(&word, from + done, 8);
        if (word & UINT64_C(0x8080808080808080))
            return done;
        memcpy(to + done, &word, 8);
        done += 8;
    }
    for (; done < n; done++) {
        if ((unsigned char)from[done] > 127)
            return done;
        to[done] = from[done];
    }
    return done;
}

/* ---- SSE2 ---------------------------------------------------------------------------------------------- */

#if defined(MCPFAST_SSE2)

static inline int mcpfast_first_bit(unsigned int mask)
{
#if defined(_MSC_VER)
    unsigned long index;
    _BitScanForward(&index, mask);
    return (int)index;
#else
    return __builtin_ctz(mask);
#endif
}

/* One bit per byte of the 16 at p that is CR or LF. */
static inline unsigned int mcpfast_eol_mask(const char *p)
{
    const __m128i v = _mm_loadu_si128((const __m128i *)p);
    const __m128i lf = _mm_cmpeq_epi8(v, _mm_set1_epi8('\n'));
    const __m128i cr = _mm_cmpeq_epi8(v, _mm_set1_epi8('\r'));
    return (unsigned int)_mm_movemask_epi8(_mm_or_si128(lf, cr));
}

static inline const char *mcpfast_find_eol_sse2(const char *p, const char *end)
{
    const char *head = p + 64;
    unsigned int mask;

    if (end - p < 16)
        return mcpfast_find_eol_portable(p, end);

    /* Most lines end soon: 16 bytes at a time at first. */
    if (end - p >= 64) {
        do {
            mask = mcpfast_eol_mask(p);
            if (mask)
                return p + mcpfast_first_bit(mask);
            p += 16;
        } while (p < head);
    }
    /* Then 64 at a time. CR is 13 and LF 10, and text has few bytes up to 13, so one comparison of the least
     * byte of each four stands for eight; a tab only costs a look at its block. */
    while (end - p >= 64) {
        const __m128i a = _mm_loadu_si128((const __m128i *)p);
        const __m128i b = _mm_loadu_si128((const __m128i *)(p + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(p + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(p + 48));
        const __m128i least = _mm_min_epu8(_mm_min_epu8(a, b), _mm_min_epu8(c, d));
        const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(least, _mm_set1_epi8('\r')), least);
        if (_mm_movemask_epi8(low)) {
            const char *stop = p + 64;
            for (; p < stop; p += 16) {
                mask = mcpfast_eol_mask(p);
                if (mask)
                    return p + mcpfast_first_bit(mask);
            }
        } else {
            p += 64;
        }
    }
    for (; end - p >= 16; p += 16) {
        mask = mcpfast_eol_mask(p);
        if (mask)
            return p + mcpfast_first_bit(mask);
    }
    if (p < end) {
        /* The last 16 bytes; those before p are known to be none. */
        p = end - 16;
        mask = mcpfast_eol_mask(p);
        if (mask)
            return p + mcpfast_first_bit(mask);
    }
    return end;
}

static inline size_t mcpfast_copy_ascii_sse2(char *to, const char *from, size_t n)
{
    size_t done = 0;

    if (n < 16)
        return mcpfast_copy_ascii_portable(to, from, n);
    for (; n - done >= 64; done += 64) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(from + done));
        const __m128i b = _mm_loadu_si128((const __m128i *)(from + done + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(from + done + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(from + done + 48));
        if (_mm_movemask_epi8(_mm_or_si128(_mm_or_si128(a, b), _mm_or_si128(c, d))))
            return done;
        _mm_storeu_si128((__m128i *)(to + done), a);
        _mm_storeu_si128((__m128i *)(to + done + 16), b);
        _mm_storeu_si128((__m128i *)(to + done + 32), c);
        _mm_storeu_si128((__m128i *)(to + done + 48), d);
    }
    for (; n - done >= 16; done += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(from + done));
        if (_mm_movemask_epi8(v))
            return done;
        _mm_storeu_si128((__m128i *)(to + done), v);
    }
    if (done < n) {
        /* The last 16 bytes; those before `done` are known to be ASCII. */
        const __m128i v = _mm_loadu_si128((const __m128i *)(from + n - 16));
        if (_mm_movemask_epi8(v))
            return done;
        _mm_storeu_si128((__m128i *)(to + n - 16), v);
    }
    return n;
}

#endif /* MCPFAST_SSE2 */

/* ---- NEON ---------------------------------------------------------------------------------------------- */

#if defined(MCPFAST_NEON)

static inline int mcpfast_first_bit(uint64_t mask)
{
#if defined(_MSC_VER)
    unsigned long index;
    _BitScanForward64(&index, mask);
    return (int)index;
#else
    return __builtin_ctzll(mask);
#endif
}

/* Four bits per byte of the 16 at p that is CR or LF: NEON has no movemask, narrowing by four is its stand-in. */
static inline uint64_t mcpfast_eol_mask(const char *p)
{
    const uint8x16_t v = vld1q_u8((const uint8_t *)p);
    const uint8x16_t eol = vorrq_u8(vceqq_u8(v, vdupq_n_u8('\n')), vceqq_u8(v, vdupq_n_u8('\r')));
    return vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(eol), 4)), 0);
}

static inline const char *mcpfast_find_eol_neon(const char *p, const char *end)
{
    const char *head = p + 64;
    uint64_t mask;

    if (end - p < 16)
        return mcpfast_find_eol_portable(p, end);

    /* The same steps as for SSE2, for the same reasons. */
    if (end - p >= 64) {
        do {
            mask = mcpfast_eol_mask(p);
            if (mask)
                return p + (mcpfast_first_bit(mask) >> 2);
            p += 16;
        } while (p < head);
    }
    while (end - p >= 64) {
        const uint8x16_t a = vld1q_u8((const uint8_t *)p);
        const uint8x16_t b = vld1q_u8((const uint8_t *)(p + 16));
        const uint8x16_t c = vld1q_u8((const uint8_t *)(p + 32));
        const uint8x16_t d = vld1q_u8((const uint8_t *)(p + 48));
        if (vminvq_u8(vminq_u8(vminq_u8(a, b), vminq_u8(c, d))) <= '\r') {
            const char *stop = p + 64;
            for (; p < stop; p += 16) {
                mask = mcpfast_eol_mask(p);
                if (mask)
                    return p + (mcpfast_first_bit(mask) >> 2);
            }
        } else {
            p += 64;
        }
    }
    for (; end - p >= 16; p += 16) {
        mask = mcpfast_eol_mask(p);
        if (mask)
            return p + (mcpfast_first_bit(mask) >> 2);
    }
    if (p < end) {
        p = end - 16;
        mask = mcpfast_eol_mask(p);
        if (mask)
            return p + (mcpfast_first_bit(mask) >> 2);
    }
    return end;
}

static inline size_t mcpfast_copy_ascii_neon(char *to, const char *from, size_t n)
{
    size_t done = 0;

    if (n < 16)
        return mcpfast_copy_ascii_portable(to, from, n);
    for (; n - done >= 64; done += 64) {
        const uint8x16_t a = vld1q_u8((const uint8_t *)(from + done));
        const uint8x16_t b = vld1q_u8((const uint8_t *)(from + done + 16));
        const uint8x16_t c = vld1q_u8((const uint8_t *)(from + done + 32));
        const uint8x16_t d = vld1q_u8((const uint8_t *)(from + done + 48));
        if (vmaxvq_u8(vorrq_u8(vorrq_u8(a, b), vorrq_u8(c, d))) > 127)
            return done;
        vst1q_u8((uint8_t *)(to + done), a);
        vst1q_u8((uint8_t *)(to + done + 16), b);
        vst1q_u8((uint8_t *)(to + done + 32), c);
        vst1q_u8((uint8_t *)(to + done + 48), d);
    }
    for (; n - done >= 16; done += 16) {
        const uint8x16_t v = vld1q_u8((const uint8_t *)(from + done));
        if (vmaxvq_u8(v) > 127)
            return done;
        vst1q_u8((uint8_t *)(to + done), v);
    }
    if (done < n) {
        const uint8x16_t v = vld1q_u8((const uint8_t *)(from + n - 16));
        if (vmaxvq_u8(v) > 127)
            return done;
        vst1q_u8((uint8_t *)(to + n - 16), v);
    }
    return n;
}

#endif /* MCPFAST_NEON */

#if defined(MCPFAST_SSE2)
#define MCPFAST_SCAN "sse2"
#define mcpfast_find_eol mcpfast_find_eol_sse2
#define mcpfast_copy_ascii mcpfast_copy_ascii_sse2
#elif defined(MCPFAST_NEON)
#define MCPFAST_SCAN "neon"
#define mcpfast_find_eol mcpfast_find_eol_neon
#define mcpfast_copy_ascii mcpfast_copy_ascii_neon
#else
#define MCPFAST_SCAN "portable"
#define mcpfast_find_eol mcpfast_find_eol_portable
#define mcpfast_copy_ascii mcpfast_copy_ascii_portable
#endif

#endif /* MCPFAST_SCAN_H */
