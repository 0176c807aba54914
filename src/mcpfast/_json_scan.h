/* What orjson would change in silence, found in the bytes of a document before it is parsed.
 *
 * Plain C without Python, so that a test can build it by itself and hold the vector code against the portable code
 * (-DMCPFAST_PORTABLE_SCAN). Answers are exact for valid JSON. For anything else they only decide whose error
 * the caller gets to see.
 */
#ifndef MCPFAST_JSON_SCAN_H
#define MCPFAST_JSON_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(MCPFAST_PORTABLE_SCAN)
#if defined(__SSE2__) || defined(_M_X64) || (defined(_M_IX86_FP) && _M_IX86_FP >= 2)
#define MCPFAST_SCAN_SSE2
#include <emmintrin.h>
#elif defined(__aarch64__) || defined(_M_ARM64)
#define MCPFAST_SCAN_NEON
#include <arm_neon.h>
#endif
#endif

enum {
    JSON_LONG_NUMBER = 1, /* 19 digits or more in a row that are no fraction and in no string: may be over 64 bits */
    JSON_TOO_DEEP = 2     /* more than max_depth arrays and objects open at one time */
};

enum { JSON_LONG = 19 }; /* digits of 2**63, the shortest integer that can be over 64 bits when negative */

static inline int json_is_digit(uint8_t c) { return (uint8_t)(c - '0') <= 9; }

/* Digits after a point never make an integer. Floats near zero often have 19 of them: 0.0021060533511106927 */
static inline int json_is_fraction(const uint8_t *p, size_t start) { return start > 0 && p[start - 1] == '.'; }

/* Opening brackets, in strings too. Counted in blocks whose count fits a byte, which compilers turn into vector code. */
static size_t json_count_openers(const uint8_t *p, size_t n) {
    size_t total = 0;
    while (n) {
        const size_t block = n < 255 ? n : 255;
        uint8_t count = 0;
        for (size_t i = 0; i < block; i++) count = (uint8_t)(count + ((p[i] | 0x20) == '{')); /* '[' | 0x20 is '{' */
        total += count;
        p += block;
        n -= block;
    }
    return total;
}

/* Whether JSON_LONG digits may stand in a row, in strings too. Looks at every 19th byte, and around it if that is a
 * digit. Where numbers are frequent the jumps cost more than the exact scan, so that is left to decide. */
static int json_may_have_long_run(const uint8_t *p, size_t n) {
    size_t hits = 0, i = JSON_LONG - 1;
    while (i < n) {
        size_t start = i, end = i + 1;
        if (!json_is_digit(p[i])) {
            i += JSON_LONG;
            continue;
        }
        if (++hits > 16 + i / 64) return 1;
        /* Stops within 19 steps: the byte 19 before is no digit. */
        while (start > 0 && json_is_digit(p[start - 1])) start--;
        while (end < n && json_is_digit(p[end])) end++;
        if (end - start >= JSON_LONG && !json_is_fraction(p, start)) return 1;
        i = end + JSON_LONG; /* p[end] is no digit */
    }
    return 0;
}

#if defined(MCPFAST_SCAN_SSE2) || defined(MCPFAST_SCAN_NEON)

/* One bit per byte of a block of 64, the lowest for the first byte. */
typedef struct {
    uint64_t quote, backslash, opener, closer, digit;
} json_masks;

#if defined(MCPFAST_SCAN_SSE2)

static inline void json_classify(const uint8_t *p, json_masks *m) {
    memset(m, 0, sizeof *m);
    for (int lane = 0; lane < 4; lane++) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(p + 16 * lane));
        const __m128i folded = _mm_or_si128(v, _mm_set1_epi8(0x20)); /* [ is then {, and ] is } */
        const __m128i value = _mm_sub_epi8(v, _mm_set1_epi8('0'));
        const __m128i digit = _mm_cmpeq_epi8(_mm_min_epu8(value, _mm_set1_epi8(9)), value);
        const int at = 16 * lane;
#define JSON_BITS(x) ((uint64_t)(uint32_t)_mm_movemask_epi8(x) << at)
        m->quote |= JSON_BITS(_mm_cmpeq_epi8(v, _mm_set1_epi8('"')));
        m->backslash |= JSON_BITS(_mm_cmpeq_epi8(v, _mm_set1_epi8('\\')));
        m->opener |= JSON_BITS(_mm_cmpeq_epi8(folded, _mm_set1_epi8('{')));
        m->closer |= JSON_BITS(_mm_cmpeq_epi8(folded, _mm_set1_epi8('}')));
        m->digit |= JSON_BITS(digit);
#undef JSON_BITS
    }
}

#else

/* NEON has no movemask: keep one bit per byte, each lane its own, then add neighbours until 64 bits are left. */
static inline uint64_t json_bits(const uint8x16_t lanes[4]) {
    static const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t w = vld1q_u8(weights);
    const uint8x16_t low = vpaddq_u8(vandq_u8(lanes[0], w), vandq_u8(lanes[1], w));
    const uint8x16_t high = vpaddq_u8(vandq_u8(lanes[2], w), vandq_u8(lanes[3], w));
    const uint8x16_t sum = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}

static inline void json_classify(const uint8_t *p, json_masks *m) {
    uint8x16_t quote[4], backslash[4], opener[4], closer[4], digit[4];
    for (int lane = 0; lane < 4; lane++) {
        const uint8x16_t v = vld1q_u8(p + 16 * lane);
        const uint8x16_t folded = vorrq_u8(v, vdupq_n_u8(0x20)); /* [ is then {, and ] is } */
        quote[lane] = vceqq_u8(v, vdupq_n_u8('"'));
        backslash[lane] = vceqq_u8(v, vdupq_n_u8('\\'));
        opener[lane] = vceqq_u8(folded, vdupq_n_u8('{'));
        closer[lane] = vceqq_u8(folded, vdupq_n_u8('}'));
        digit[lane] = vcleq_u8(vsubq_u8(v, vdupq_n_u8('0')), vdupq_n_u8(9));
    }
    m->quote = json_bits(quote);
    m->backslash = json_bits(backslash);
    m->opener = json_bits(opener);
    m->closer = json_bits(closer);
    m->digit = json_bits(digit);
}

#endif

static inline ptrdiff_t json_popcount(uint64_t x) {
    x -= (x >> 1) & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + ((x >> 2) & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (ptrdiff_t)((x * UINT64_C(0x0101010101010101)) >> 56);
}

/* Bits of bytes that stand after an odd run of backslashes. `*carry` goes from block to block: 1 if the first byte of
 * the next one is such. Runs that start on an odd place carry their sum to an even one, so the sum tells parity. */
static inline uint64_t json_escaped(uint64_t backslash, uint64_t *carry) {
    const uint64_t even = UINT64_C(0x5555555555555555);
    uint64_t follows, odd_starts, sum;
    if (!backslash) {
        const uint64_t first = *carry;
        *carry = 0;
        return first;
    }
    backslash &= ~*carry;
    follows = (backslash << 1) | *carry;
    odd_starts = backslash & ~even & ~follows;
    sum = odd_starts + backslash;
    *carry = sum < backslash;
    return (even ^ (sum << 1)) & follows;
}

/* The exact answer: strings are left out. Depth is counted per block, bit by bit only where it could go over. */
static int json_scan_outside(const uint8_t *p, size_t n, size_t max_depth) {
    const ptrdiff_t limit = (ptrdiff_t)max_depth;
    uint64_t carry = 0;     /* see json_escaped */
    uint64_t in_string = 0; /* all ones if the block starts within a string */
    /* Bit i of runN: the N bytes up to byte i are digits; here of the block before, for runs across the border. */
    uint64_t run1 = 0, run2 = 0, run4 = 0, run8 = 0, run16 = 0, run19 = 0;
    ptrdiff_t depth = 0;
    int flags = 0;
    uint8_t last[64];

    for (size_t at = 0; at < n; at += 64) {
        json_masks m;
        uint64_t string, d1, d2, d4, d8, d16, d19;
        const uint8_t *block = p + at;
        if (n - at < 64) {
            memset(last, ' ', sizeof last);
            memcpy(last, block, n - at);
            block = last;
        }
        json_classify(block, &m);

        string = m.quote & ~json_escaped(m.backslash, &carry);
        string ^= string << 1; /* each bit becomes the parity of all quotes up to it */
        string ^= string << 2;
        string ^= string << 4;
        string ^= string << 8;
        string ^= string << 16;
        string ^= string << 32;
        string ^= in_string;
        in_string = (uint64_t)0 - (string >> 63);

        d1 = m.digit & ~string;
        d2 = d1 & (d1 << 1 | run1 >> 63);
        d4 = d2 & (d2 << 2 | run2 >> 62);
        d8 = d4 & (d4 << 4 | run4 >> 60);
        d16 = d8 & (d8 << 8 | run8 >> 56);
        d19 = d16 & (d16 << 3 | run16 >> 61);
        for (uint64_t ends = d19 & ~(d19 << 1 | run19 >> 63), i = at; ends; ends >>= 1, i++)
            if (ends & 1 && !json_is_fraction(p, i + 1 - JSON_LONG)) flags = JSON_LONG_NUMBER;
        run1 = d1, run2 = d2, run4 = d4, run8 = d8, run16 = d16, run19 = d19;

        m.opener &= ~string;
        m.closer &= ~string;
        if (m.opener) {
            const ptrdiff_t opened = json_popcount(m.opener);
            if (depth + opened > limit) {
                ptrdiff_t now = depth;
                for (uint64_t o = m.opener, c = m.closer; o; o >>= 1, c >>= 1) {
                    now += (ptrdiff_t)(o & 1) - (ptrdiff_t)(c & 1);
                    if (now > limit) return JSON_TOO_DEEP;
                }
            }
            depth += opened;
        }
        if (m.closer) depth -= json_popcount(m.closer);
    }
    return flags;
}

#else

static int json_scan_outside(const uint8_t *p, size_t n, size_t max_depth) {
    const ptrdiff_t limit = (ptrdiff_t)max_depth;
    ptrdiff_t depth = 0;
    size_t run = 0;
    int flags = 0, in_string = 0, escaped = 0;

    for (size_t i = 0; i < n; i++) {
        const uint8_t c = p[i];
        if (c == '"' && !escaped) in_string = !in_string;
        escaped = c == '\\' && !escaped;
        run = !in_string && json_is_digit(c) ? run + 1 : 0;
        if (run == JSON_LONG && !json_is_fraction(p, i + 1 - JSON_LONG)) flags = JSON_LONG_NUMBER;
        if (in_string) continue;
        if ((c | 0x20) == '{' && ++depth > limit) return JSON_TOO_DEEP;
        if ((c | 0x20) == '}') depth--;
    }
    return flags;
}

#endif

/* JSON_TOO_DEEP, or JSON_LONG_NUMBER, or 0 where orjson reads the document exactly. Two cheap looks settle most
 * documents; only those with many brackets, or with digits that may be a long number, need the strings left out. */
static int json_scan(const uint8_t *p, size_t n, size_t max_depth) {
    if ((n <= max_depth || json_count_openers(p, n) <= max_depth) && !json_may_have_long_run(p, n)) return 0;
    return json_scan_outside(p, n, max_depth);
}

#endif
