// The program of two_processes.ncu-rep: a few kernels in two processes, with NVTX ranges of every kind.
//
//     nvcc -arch=sm_90 -std=c++17 two_processes.cu -o tiny
//     ncu -f -o two_processes --target-processes all --clock-control none --nvtx --profile-from-start off --import-sass no
//         --metrics ... ./tiny
//     ncu -i two_processes.ncu-rep --csv --page raw --print-units base --rename-kernels no > two_processes.csv
#include <cuda_runtime.h>
#include <cuda_profiler_api.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>
#include <thread>
template <typename T, int U> __global__ void scale(T *x, T a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int u = 0; u < U; ++u) if (i < n) x[i] = x[i] * a + a;
}
__global__ void halves(__half2 *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = __hfma2(x[i], x[i], x[i]);
}
__global__ void product(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __nv_bfloat16, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __nv_bfloat16, row_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.f);
    load_matrix_sync(fa, a, 16); load_matrix_sync(fb, b, 16);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c + 256 * blockIdx.x, fc, 16, mem_row_major);
}
static void push(nvtxDomainHandle_t d, const char *text, bool registered) {
    nvtxEventAttributes_t e; memset(&e, 0, sizeof e);
    e.version = NVTX_VERSION; e.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    e.colorType = NVTX_COLOR_ARGB; e.color = 0xff00ff00;
    e.payloadType = NVTX_PAYLOAD_TYPE_INT64; e.payload.llValue = -7;
    if (registered) { e.messageType = NVTX_MESSAGE_TYPE_REGISTERED; e.message.registered = nvtxDomainRegisterStringA(d, text); }
    else { e.messageType = NVTX_MESSAGE_TYPE_ASCII; e.message.ascii = text; }
    nvtxDomainRangePushEx(d, &e);
}
static void work(bool odd) {
    const int n = 1 << 16;
    float *f; double *g; __half2 *h; __nv_bfloat16 *b; cudaStream_t s;
    cudaMalloc(&f, 4 * n); cudaMalloc(&g, 8 * n); cudaMalloc(&h, 4 * n); cudaMalloc(&b, 2 * n); cudaStreamCreate(&s);
    nvtxDomainHandle_t d = nvtxDomainCreateA("model");
    cudaProfilerStart();
    scale<float, 1><<<n / 256, 256>>>(f, 2.f, n);
    nvtxRangePushA("rooflens:phase:forward");
    nvtxRangePushA("rooflens:module:layer1.0.conv%3A1");
    scale<float, 1><<<n / 256, 256>>>(f, 2.f, n);
    product<<<dim3(8, 2, 1), 32>>>(b, b, f);
    if (!odd) { nvtxRangePop(); nvtxRangePop(); cudaDeviceSynchronize(); cudaProfilerStop(); return; }
    push(d, "attention", false); push(d, "softmax registered", true);
    scale<double, 3><<<n / 256, 256, 0, s>>>(g, 2., n);
    nvtxDomainRangePop(d); nvtxDomainRangePop(d);
    nvtxRangePop();
    nvtxRangePushA("odd a:b\\c, \xc3\xa9");
    halves<<<n / 128, 128, 0, s>>>(h, n);
    nvtxRangePop();
    nvtxRangePop();
    cudaDeviceSynchronize();
    if (odd) {
        nvtxRangeId_t id = nvtxRangeStartA("whole step");
        nvtxRangePushA("main thread");
        std::thread([&] {
            nvtxRangePushA("rooflens:phase:backward");
            nvtxRangePushA("rooflens:module:layer1.0");
            scale<float, 1><<<n / 256, 256>>>(f, 2.f, n);
            cudaDeviceSynchronize();
            nvtxRangePop(); nvtxRangePop();
        }).join();
        nvtxRangePop();
        product<<<4, 32, 0, s>>>(b, b, f);
        nvtxRangeEnd(id);
    }
    cudaDeviceSynchronize();
    cudaProfilerStop();
}
int main() {
    pid_t child = fork();
    work(child != 0);
    if (child) waitpid(child, nullptr, 0);
    return 0;
}
