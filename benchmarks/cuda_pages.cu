// cuda-pages: what each call of virtual memory management costs, by size of handle, as one JSON array.
// Times are medians over the rounds, in microseconds of one call.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

enum { ROUNDS = 32, CALLS = 5 };

static void check(const char *what, int code)
{
    if (code == 0)
        return;
    std::fprintf(stderr, "cuda-pages: %s: error %d\n", what, code);
    std::exit(1);
}

// The driver's function of that name; the program does not link the driver.
template <typename F> static F entry(const char *name)
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;

    check(name, cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    check(name, found != cudaDriverEntryPointSuccess);
    return (F)function;
}

static double now_us()
{
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static double median(std::vector<double> times)
{
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

int main()
{
    check("cudaFree", cudaFree(nullptr)); // makes the context
    auto reserve = entry<CUresult (*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)>("cuMemAddressReserve");
    auto release_range = entry<CUresult (*)(CUdeviceptr, size_t)>("cuMemAddressFree");
    auto create = entry<CUresult (*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)>("cuMemCreate");
    auto map = entry<CUresult (*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long)>("cuMemMap");
    auto access = entry<CUresult (*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t)>("cuMemSetAccess");
    auto unmap = entry<CUresult (*)(CUdeviceptr, size_t)>("cuMemUnmap");
    auto release = entry<CUresult (*)(CUmemGenericAllocationHandle)>("cuMemRelease");
    CUmemAllocationProp prop = {};
    CUmemAccessDesc desc = {};
    const char *comma = "";

    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    desc.location = prop.location;
    desc.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    std::printf("[");
    for (size_t bytes = size_t{2} << 20; bytes <= size_t{512} << 20; bytes *= 4) {
        std::vector<double> times[CALLS];
        CUdeviceptr at = 0;

        check("cuMemAddressReserve", reserve(&at, bytes, 0, 0, 0));
        for (int round = 0; round < ROUNDS; round++) {
            CUmemGenericAllocationHandle handle;
            double stamps[CALLS + 1];

            stamps[0] = now_us();
            check("cuMemCreate", create(&handle, bytes, &prop, 0));
            stamps[1] = now_us();
            check("cuMemMap", map(at, bytes, 0, handle, 0));
            stamps[2] = now_us();
            check("cuMemSetAccess", access(at, bytes, &desc, 1));
            stamps[3] = now_us();
            check("cuMemUnmap", unmap(at, bytes));
            stamps[4] = now_us();
            check("cuMemRelease", release(handle));
            stamps[5] = now_us();
            for (int i = 0; i < CALLS; i++)
                times[i].push_back(stamps[i + 1] - stamps[i]);
        }
        check("cuMemAddressFree", release_range(at, bytes));
        std::printf("%s\n {\"bytes\": %zu, \"create_us\": %.1f, \"map_us\": %.1f, \"access_us\": %.1f, "
                    "\"unmap_us\": %.1f, \"release_us\": %.1f}", comma, bytes, median(times[0]),
                    median(times[1]), median(times[2]), median(times[3]), median(times[4]));
        comma = ",";
    }
    std::printf("\n]\n");
    return 0;
}
