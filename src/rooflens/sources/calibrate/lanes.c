/* Multiply-adds on registers: what the vector lanes of one core can do. Twelve chains hide the latency. */

#if defined(__AVX512F__)
#define WIDTH 64
#elif defined(__AVX__)
#define WIDTH 32
#else
#define WIDTH 16
#endif
#define CHAINS 12
#define STEPS 32

#define LANES(T, NAME)                                                       \
  typedef T NAME##_t __attribute__((vector_size(WIDTH)));                    \
  double NAME(long rounds, double a0, double b0) {                           \
    NAME##_t a = {0}, b = {0}, x[CHAINS];                                    \
    a += (T)a0;                                                              \
    b += (T)b0;                                                              \
    _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; ++c) x[c] = a * (T)c; \
    for (long i = 0; i < rounds * STEPS; ++i) {                              \
      _Pragma("GCC unroll 12") for (int c = 0; c < CHAINS; ++c) x[c] = x[c] * a + b; \
    }                                                                        \
    double sum = 0;                                                          \
    for (int c = 0; c < CHAINS; ++c)                                         \
      for (int j = 0; j < (int)(WIDTH / sizeof(T)); ++j) sum += x[c][j];     \
    return sum;                                                              \
  }                                                                          \
  long NAME##_flops(void) { return 2L * CHAINS * STEPS * (long)(WIDTH / sizeof(T)); }

LANES(float, vector_fp32)
LANES(double, vector_fp64)
