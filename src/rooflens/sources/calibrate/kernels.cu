// Kernels that keep one unit of the GPU busy and nothing else. Built at run time by NVRTC, which torch brings along.

// Eight chains per thread, so that no operation waits for the one before it. 32 steps per round: 256 operations.
#define CHAINS(T, STEP)                                                                                       \
  T x[8];                                                                                                     \
  _Pragma("unroll") for (int c = 0; c < 8; ++c) x[c] = (T)(threadIdx.x + c) * (T)0.001;                       \
  for (int r = 0; r < rounds; ++r) {                                                                          \
    _Pragma("unroll") for (int s = 0; s < 32; ++s) {                                                          \
      _Pragma("unroll") for (int c = 0; c < 8; ++c) { STEP; }                                                 \
    }                                                                                                         \
  }                                                                                                           \
  T sum = 0;                                                                                                  \
  _Pragma("unroll") for (int c = 0; c < 8; ++c) sum += x[c];                                                  \
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;

extern "C" __global__ void vector_fp32(float* out, const float* ab, int rounds) {
  const float a = ab[0], b = ab[1];
  CHAINS(float, x[c] = fmaf(x[c], a, b))
}

extern "C" __global__ void vector_fp64(double* out, const double* ab, int rounds) {
  const double a = ab[0], b = ab[1];
  CHAINS(double, x[c] = fma(x[c], a, b))
}

extern "C" __global__ void special_fp32(float* out, const float* ab, int rounds) {
  CHAINS(float, asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(x[c]) : "f"(-x[c])))
}

// Reads `set` float4 (a power of two) again and again, eight loads in flight per thread.
#define READ(LOAD, FIRST, STRIDE)                                                                             \
  int at = (FIRST);                                                                                           \
  const int stride = (STRIDE);                                                                                \
  float sum = 0;                                                                                              \
  for (int r = 0; r < rounds; ++r) {                                                                          \
    float4 v[8];                                                                                              \
    _Pragma("unroll") for (int u = 0; u < 8; ++u) v[u] = LOAD(data + ((at + u * stride) & (set - 1)));        \
    _Pragma("unroll") for (int u = 0; u < 8; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;                   \
    at = (at + 8 * stride) & (set - 1);                                                                       \
  }                                                                                                           \
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;

// Every block walks through the same set: it lies in the L1 of each multiprocessor.
extern "C" __global__ void read_l1(const float4* data, float* out, int set, int rounds) {
  READ(*, threadIdx.x, blockDim.x)
}

// All blocks share the set out among them, past L1.
extern "C" __global__ void read_l2(const float4* data, float* out, int set, int rounds) {
  READ(__ldcg, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x)
}
