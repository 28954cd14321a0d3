/* cuda_api.def as a table. Every class except `none` needs a hook of that name in this library;
 * otherwise linking fails, which keeps the list and the code in step. */
#include "shim/internal.h"

#define HOOK(symbol) reinterpret_cast<::shim::AnyFunction>(&symbol)
#define HOOK_resolve HOOK
#define HOOK_context HOOK
#define HOOK_alloc HOOK
#define HOOK_free HOOK
#define HOOK_graph HOOK
#define HOOK_map HOOK
#define HOOK_query HOOK
#define HOOK_capture HOOK
#define HOOK_launch HOOK
#define HOOK_copy HOOK
#define HOOK_code HOOK
#define HOOK_share HOOK
#define HOOK_wait HOOK
#define HOOK_none(symbol) nullptr

// Declared without arguments: only their addresses are needed here.
#define BILLOW_API(symbol, name, since, arguments, kind, stream) extern "C" void symbol();
#include "shim/cuda_api.def"
#undef BILLOW_API

namespace shim {
const ApiEntry api_table[api_count] = {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) \
  {#symbol, #name, since, arguments, stream, Class::kind, HOOK_##kind(symbol)},
#include "shim/cuda_api.def"
#undef BILLOW_API
};
}  // namespace shim
