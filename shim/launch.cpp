/* The gated hooks: launches, copies, code loading and sharing, all generated from cuda_api.def.
 * Each forwards exactly the arguments it got (all are integers or pointers, one register or stack
 * word each), behind the gate, and is metered while jobs take turns. */
#include <utility>

#include "shim/internal.h"

namespace shim {
namespace {

constexpr bool starts_with(const char* text, const char* start) {
  while (*start)
    if (*text++ != *start++)
      return false;
  return true;
}
constexpr bool ends_with(const char* text, const char* end) {
  size_t n = 0, m = 0;
  while (text[n])
    n++;
  while (end[m])
    m++;
  if (m > n)
    return false;
  for (size_t i = 0; i < m; i++)
    if (text[n - m + i] != end[i])
      return false;
  return true;
}
constexpr bool per_thread(const char* symbol) {
  return ends_with(symbol, "_ptsz") || ends_with(symbol, "_ptds");
}
constexpr uint64_t feature(const char* symbol) {
  if (starts_with(symbol, "cuMulticast"))
    return BILLOW_USES_MULTICAST;
  if (starts_with(symbol, "cuImportExternal") ||
      starts_with(symbol, "cuMemGetHandleForAddressRange"))
    return BILLOW_USES_EXTERNAL;
  return BILLOW_USES_IPC;
}

template <int Stream>
inline CUstream stream_of(const Word* arguments) {
  if constexpr (Stream >= 0)
    return reinterpret_cast<CUstream>(arguments[Stream]);
  else if constexpr (Stream == -2) {
    const auto* config = reinterpret_cast<const CUlaunchConfig*>(arguments[0]);
    return config ? config->hStream : nullptr;
  } else
    return nullptr;
}

template <Api A, int Stream, bool PerThread, class... Words>
inline __attribute__((always_inline)) CUresult work(Words... words) {
  Entry entry(true);
  if (UNLIKELY(entry.error()))
    return entry.error();
  const CUresult r = call(A, words...);
  if (UNLIKELY(entry.thread()->metered) && entry.thread()->depth == 1 && r == CUDA_OK) {
    const Word arguments[] = {words..., 0};
    meter(entry.thread(), stream_of<Stream>(arguments), PerThread);
  }
  return r;
}

template <Api A, uint32_t Kind, class... Words>
inline CUresult aside(uint64_t features, Words... words) {
  Entry entry(false, Kind);
  if (UNLIKELY(entry.error()))
    return entry.error();
  const CUresult r = call(A, words...);
  if (features && r == CUDA_OK)
    uses(features);
  return r;
}

}  // namespace
}  // namespace shim

using shim::Word;

#define PARAMETERS_0
#define PARAMETERS_1 Word a
#define PARAMETERS_2 PARAMETERS_1, Word b
#define PARAMETERS_3 PARAMETERS_2, Word c
#define PARAMETERS_4 PARAMETERS_3, Word d
#define PARAMETERS_5 PARAMETERS_4, Word e
#define PARAMETERS_6 PARAMETERS_5, Word f
#define PARAMETERS_7 PARAMETERS_6, Word g
#define PARAMETERS_8 PARAMETERS_7, Word h
#define PARAMETERS_9 PARAMETERS_8, Word i
#define PARAMETERS_10 PARAMETERS_9, Word j
#define PARAMETERS_11 PARAMETERS_10, Word k
#define ARGUMENTS_0
#define ARGUMENTS_1 a
#define ARGUMENTS_2 ARGUMENTS_1, b
#define ARGUMENTS_3 ARGUMENTS_2, c
#define ARGUMENTS_4 ARGUMENTS_3, d
#define ARGUMENTS_5 ARGUMENTS_4, e
#define ARGUMENTS_6 ARGUMENTS_5, f
#define ARGUMENTS_7 ARGUMENTS_6, g
#define ARGUMENTS_8 ARGUMENTS_7, h
#define ARGUMENTS_9 ARGUMENTS_8, i
#define ARGUMENTS_10 ARGUMENTS_9, j
#define ARGUMENTS_11 ARGUMENTS_10, k

#define FOLLOWED_BY(...) __VA_OPT__(, ) __VA_ARGS__

#define WORK(symbol, arguments, stream)                                       \
  EXPORT CUresult symbol(PARAMETERS_##arguments) {                            \
    return shim::work<shim::api_##symbol, stream, shim::per_thread(#symbol)>( \
        ARGUMENTS_##arguments);                                               \
  }
#define NOTHING(symbol, arguments, stream)
#define GATED_resolve NOTHING
#define GATED_context NOTHING
#define GATED_alloc NOTHING
#define GATED_free NOTHING
#define GATED_graph NOTHING
#define GATED_map NOTHING
#define GATED_query NOTHING
#define GATED_capture NOTHING
#define GATED_none NOTHING
#define GATED_launch WORK
#define GATED_copy WORK
#define ASIDE(symbol, arguments, kind, features)                                               \
  EXPORT CUresult symbol(PARAMETERS_##arguments) {                                             \
    return shim::aside<shim::api_##symbol, kind>(features FOLLOWED_BY(ARGUMENTS_##arguments)); \
  }
#define GATED_code(symbol, arguments, stream) ASIDE(symbol, arguments, shim::inside, 0)
#define GATED_share(symbol, arguments, stream) \
  ASIDE(symbol, arguments, shim::inside, shim::feature(#symbol))
#define GATED_wait(symbol, arguments, stream) ASIDE(symbol, arguments, shim::waiting_inside, 0)

#define BILLOW_API(symbol, name, since, arguments, kind, stream) \
  GATED_##kind(symbol, arguments, stream)
#include "shim/cuda_api.def"
#undef BILLOW_API
