#include "engine/kernels.hpp"

namespace terrace::engine {

namespace portable {
extern const Kernels kKernels;
}
#ifdef TERRACE_ENGINE_X86_KERNELS
namespace x86_64_v3 {
extern const Kernels kKernels;
}
namespace x86_64_v4 {
extern const Kernels kKernels;
}
#endif

namespace {

struct List {
  const Kernels* entries[4] = {};
};

List list_usable() noexcept {
  List list;
  int count = 0;
#ifdef TERRACE_ENGINE_X86_KERNELS
  __builtin_cpu_init();
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512cd");
  if (v4) list.entries[count++] = &x86_64_v4::kKernels;
  if (v3) list.entries[count++] = &x86_64_v3::kKernels;
#endif
  list.entries[count] = &portable::kKernels;
  return list;
}

}  // namespace

const Kernels* const* usable_kernels() noexcept {
  static const List list = list_usable();
  return list.entries;
}

}  // namespace terrace::engine
