/* Makes a processor with AVX-512 look like one that ends at AVX2, to a program and its libraries
 * alike: `LD_PRELOAD=libavx2_only.so program`.
 *
 * Linux lets a thread ask that CPUID faults (arch_prctl(ARCH_SET_CPUID, 0), x86 with the flag
 * "cpuid_fault"; threads started later inherit it).  The handler of the fault runs the
 * instruction and takes AVX-512, AVX-VNNI and AMX out of what it says, as on Haswell and Zen 2.
 * Peers that have no switch of their own for this are measured that way.  Where it is not to be
 * had, the program ends with a sentence. */
#include <asm/prctl.h>
#include <cpuid.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

struct leaf {
    unsigned eax, ebx, ecx, edx;
};

/* Intel's manual, volume 2, CPUID.  A leaf that is not here is passed on. */
static const struct masked {
    unsigned leaf, subleaf;
    struct leaf taken; /* bits */
} masked[] = {
    /* AVX-512 F, DQ, IFMA, PF, ER, CD, BW, VL | VBMI, VBMI2, VNNI, BITALG, VPOPCNTDQ |
     * 4VNNIW, 4FMAPS, VP2INTERSECT, AMX-BF16, AVX512-FP16, AMX-TILE, AMX-INT8 */
    {7, 0, {0, 0xdc230000, 0x00005842, 0x03c0010c}},
    /* AVX-VNNI, AVX512-BF16, AMX-FP16, AVX-IFMA | AVX-VNNI-INT8, AVX-NE-CONVERT, -INT16, AVX10 */
    {7, 1, {0x00a00030, 0, 0, 0x00080430}},
    /* the state of AVX-512 and of AMX in XCR0 */
    {0xd, 0, {0x000600e0, 0, 0, 0}},
    {0x1d, 0, {~0U, ~0U, ~0U, ~0U}},
    {0x1e, 0, {~0U, ~0U, ~0U, ~0U}},
    {0x24, 0, {~0U, ~0U, ~0U, ~0U}},
};

static bool let_cpuid_fault(bool faults)
{
    return syscall(SYS_arch_prctl, ARCH_SET_CPUID, faults ? 0UL : 1UL) == 0;
}

static struct leaf ask(unsigned leaf, unsigned subleaf)
{
    struct leaf said;

    (void)let_cpuid_fault(false);
    __cpuid_count(leaf, subleaf, said.eax, said.ebx, said.ecx, said.edx);
    (void)let_cpuid_fault(true);
    for (size_t i = 0; i < sizeof(masked) / sizeof(masked[0]); i++) {
        if (masked[i].leaf != leaf || masked[i].subleaf != subleaf)
            continue;
        said.eax &= ~masked[i].taken.eax;
        said.ebx &= ~masked[i].taken.ebx;
        said.ecx &= ~masked[i].taken.ecx;
        said.edx &= ~masked[i].taken.edx;
    }
    return said;
}

static void on_fault(int signal_number, siginfo_t *info, void *arg)
{
    static const unsigned char cpuid[] = {0x0f, 0xa2};
    greg_t *registers = ((ucontext_t *)arg)->uc_mcontext.gregs;
    const void *at = (const void *)(uintptr_t)registers[REG_RIP];
    struct leaf said;

    if (info->si_code != SI_KERNEL || memcmp(at, cpuid, sizeof(cpuid)) != 0) {
        (void)signal(signal_number, SIG_DFL); /* a fault of the program's own: it comes again */
        return;
    }
    said = ask((unsigned)registers[REG_RAX], (unsigned)registers[REG_RCX]);
    registers[REG_RAX] = said.eax;
    registers[REG_RBX] = said.ebx;
    registers[REG_RCX] = said.ecx;
    registers[REG_RDX] = said.edx;
    registers[REG_RIP] += (greg_t)sizeof(cpuid);
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

    if (sigaction(SIGSEGV, &action, NULL) == 0 && let_cpuid_fault(true))
        return;
    (void)fprintf(stderr, "avx2_only: this processor or kernel does not let CPUID fault\n");
    _exit(EXIT_FAILURE);
}
