/* The quantizers' loops: one pass over memory where plain torch makes ten.

   kernels.py has the same functions in torch, for machines without a compiler. Each element goes
   through the same operations in the same order, so that rounded values agree to the last bit; sums
   and NaN gradients need not. fuse.py compiles this file, with REAL as float or double and
   SMALLEST_SCALE from limits.py, and calls it; all scalars are passed as doubles.

   Tensors are contiguous: `rows` times `columns` values. A value per row (SHARED) is a pointer and a
   stride; a stride of 0 means one value for all rows. Sums are taken by block, then over the blocks
   in order, so that they do not depend on the number of threads. */

#include <stdint.h>
#include <stdlib.h>
#include <tgmath.h>

#define BLOCK 8192 /* values, whose sum is made as it comes */
#define SHARED(name) const REAL *name, int64_t name##_by
#define AT(name) name[at.row * name##_by]
#define EACH_BLOCK \
    _Pragma("omp parallel for num_threads(threads) if (threads > 1 && rows * columns > 4 * BLOCK)")

typedef struct {
    int64_t row, from, count;
} Block;

static int64_t blocks_of(int64_t columns) { return (columns + BLOCK - 1) / BLOCK; }

static Block block(int64_t index, int64_t columns) {
    int64_t row = index / blocks_of(columns), start = index % blocks_of(columns) * BLOCK;
    int64_t left = columns - start;
    return (Block){row, row * columns + start, left < BLOCK ? left : BLOCK};
}

/* The sum of a row's blocks, of which each has `each` sums, one of them `which`. */
static double total(const double *parts, int64_t row, int64_t columns, int each, int which) {
    double sum = 0;
    for (int64_t i = row * blocks_of(columns); i < (row + 1) * blocks_of(columns); i++)
        sum += parts[i * each + which];
    return sum;
}

/* A comparison with NaN is false: it stays what it is. */
static inline REAL clip(REAL v, REAL low, REAL high) {
    v = v < low ? low : v;
    return v > high ? high : v;
}

typedef struct {
    REAL step, least, most; /* least and most in steps from zero, where low and high are in codes */
    int moves;              /* whether the zero point follows the offset */
} Grid;

/* `place` is the zero point or, if `from_offset`, where the grid is to start. */
static Grid grid(REAL scale, REAL place, int from_offset, REAL low, REAL high) {
    REAL step = scale < (REAL)SMALLEST_SCALE ? (REAL)SMALLEST_SCALE : scale;
    REAL free_zero = from_offset ? rint(low - place / step) : place;
    REAL zero = from_offset ? clip(free_zero, low, high) : place;
    if (zero != zero) step = zero; /* a comparison with NaN would clip nothing */
    return (Grid){step, low - zero, high - zero, from_offset && free_zero == zero};
}

/* Rounded before the zero point comes to it, as ONNX's QuantizeLinear does: an odd one would turn
   ties over. */
static void round_block(const REAL *restrict x, REAL *restrict out, int64_t count, Grid on) {
    REAL step = on.step, least = on.least, most = on.most;
#pragma omp simd
    for (int64_t i = 0; i < count; i++) out[i] = rint(clip(x[i] / step, least, most)) * step;
}

int round_forward(const REAL *x, REAL *out, SHARED(scale), SHARED(place), double low, double high,
                  double from_offset, int64_t rows, int64_t columns, int threads) {
    int64_t blocks = rows * blocks_of(columns);
    EACH_BLOCK
    for (int64_t i = 0; i < blocks; i++) {
        Block at = block(i, columns);
        Grid on = grid(AT(scale), AT(place), from_offset != 0, low, high);
        round_block(x + at.from, out + at.from, at.count, on);
    }
    return 0;
}

static void round_back_block(const REAL *restrict x, const REAL *restrict gradient,
                             REAL *restrict passed, int64_t count, Grid on, double *sums) {
    REAL step = on.step, least = on.least, most = on.most, steps = 0, outside = 0;
#pragma omp simd reduction(+ : steps, outside)
    for (int64_t i = 0; i < count; i++) {
        REAL v = x[i] / step, clipped = clip(v, least, most), g = gradient[i];
        int inside = v == clipped;
        passed[i] = inside ? g : 0;
        /* round(v) - v inside; at the clips, which are whole numbers, k - z */
        steps += (rint(clipped) - (inside ? clipped : 0)) * g;
        outside += inside ? 0 : g;
    }
    sums[0] = steps;
    sums[1] = outside;
}

int round_back(const REAL *x, const REAL *gradient, REAL *passed, REAL *scales, REAL *places,
               SHARED(scale), SHARED(place), double low, double high, double factor,
               double from_offset, int64_t rows, int64_t columns, int threads) {
    int64_t blocks = rows * blocks_of(columns);
    double *parts = malloc(2 * blocks * sizeof *parts);
    if (!parts) return 1;
    EACH_BLOCK
    for (int64_t i = 0; i < blocks; i++) {
        Block at = block(i, columns);
        Grid on = grid(AT(scale), AT(place), from_offset != 0, low, high);
        round_back_block(x + at.from, gradient + at.from, passed + at.from, at.count, on,
                         parts + 2 * i);
    }
    for (Block at = {0}; at.row < rows; at.row++) {
        Grid on = grid(AT(scale), AT(place), from_offset != 0, low, high);
        double steps = total(parts, at.row, columns, 2, 0) * factor;
        double zeros = -total(parts, at.row, columns, 2, 1) * on.step * factor;
        /* With the offset the zero point moves by -1/s, and with s by offset/s^2. */
        double moved = on.moves ? zeros / on.step : 0;
        scales[at.row] = steps + moved * AT(place) / on.step;
        places[at.row] = from_offset ? -moved : zeros;
    }
    free(parts);
    return 0;
}

static double pact_back_block(const REAL *restrict x, const REAL *restrict gradient,
                              REAL *restrict passed, int64_t count, REAL top, int is_signed) {
    REAL bottom = is_signed ? -top : 0, sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) {
        REAL g = gradient[i];
        int above = x[i] >= top, below = is_signed ? x[i] <= bottom : x[i] < 0;
        passed[i] = above || below ? 0 : g;
        sum += (above ? g : 0) - (is_signed && below ? g : 0);
    }
    return sum;
}

int pact_back(const REAL *x, const REAL *gradient, REAL *passed, REAL *tops, SHARED(top),
              double is_signed, int64_t rows, int64_t columns, int threads) {
    int64_t blocks = rows * blocks_of(columns);
    double *parts = malloc(blocks * sizeof *parts);
    if (!parts) return 1;
    EACH_BLOCK
    for (int64_t i = 0; i < blocks; i++) {
        Block at = block(i, columns);
        parts[i] = pact_back_block(x + at.from, gradient + at.from, passed + at.from, at.count,
                                   AT(top), is_signed != 0);
    }
    for (int64_t row = 0; row < rows; row++) tops[row] = total(parts, row, columns, 1, 0);
    free(parts);
    return 0;
}

/* tanh for |y| up to 4 (DSQ's sharpness is at most 7.6, and |r| at most a half), as 1 - 2/(1 + e^2y), with e^2y = (e^(y/8))^16. Unlike the library's it is
   made of arithmetic alone, so that many can be computed at once. */
static inline REAL tanh_within(REAL y) {
    REAL e = 1;
    for (int k = sizeof(REAL) == 4 ? 8 : 16; k > 0; k--) e = 1 + e * (y / 8) * (1 / (REAL)k);
    e *= e;
    e *= e;
    e *= e;
    e *= e;
    return 1 - 2 / (e + 1);
}

static void soft_back_block(const REAL *restrict x, const REAL *restrict gradient,
                            REAL *restrict passed, int64_t count, REAL lower, REAL step,
                            REAL sharpness, REAL stretch, REAL top, double *sums) {
    REAL lowers = 0, uppers = 0, by_sharpness = 0, by_stretch = 0;
#pragma omp simd reduction(+ : lowers, uppers, by_sharpness, by_stretch)
    for (int64_t k = 0; k < count; k++) {
        REAL v = (x[k] - lower) / step, g = gradient[k];
        int below = v < 0, above = v > top;
        REAL inner = below || above ? 0 : g;
        v = clip(v, 0, top); /* beyond the range all that follows is multiplied by zero */
        REAL i = clip(floor(v), 0, top - 1), r = v - i - (REAL)0.5;
        REAL t = tanh_within(sharpness * r), bend = 1 - t * t;
        REAL slope = sharpness * stretch * bend, soft = i + (REAL)0.5 + stretch * t;
        passed[k] = inner * slope;
        lowers += inner * (1 - soft / top - slope * (1 - v / top)) + (below ? g : 0);
        uppers += inner * (soft - slope * v) / top + (above ? g : 0);
        by_sharpness += inner * bend * r;
        by_stretch += inner * t;
    }
    sums[0] = lowers;
    sums[1] = uppers;
    sums[2] = by_sharpness;
    sums[3] = by_stretch;
}

int soft_back(const REAL *x, const REAL *gradient, REAL *passed, REAL *lowers, REAL *uppers,
              REAL *by_sharpness, REAL *by_stretch, SHARED(lower), SHARED(step), SHARED(sharpness),
              SHARED(stretch), double top, int64_t rows, int64_t columns, int threads) {
    REAL *sums[] = {lowers, uppers, by_sharpness, by_stretch};
    int64_t blocks = rows * blocks_of(columns);
    double *parts = malloc(4 * blocks * sizeof *parts);
    if (!parts) return 1;
    EACH_BLOCK
    for (int64_t i = 0; i < blocks; i++) {
        Block at = block(i, columns);
        soft_back_block(x + at.from, gradient + at.from, passed + at.from, at.count, AT(lower),
                        AT(step), AT(sharpness), AT(stretch), top, parts + 4 * i);
    }
    for (int64_t row = 0; row < rows; row++)
        for (int which = 0; which < 4; which++)
            sums[which][row] = total(parts, row, columns, 4, which);
    free(parts);
    return 0;
}
