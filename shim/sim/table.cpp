/* The simulated driver's functions by number. -Bsymbolic binds them to this library, whatever is
 * preloaded. */
namespace simcuda {
enum {
  api_total = 0
#define BILLOW_API(symbol, name, since, arguments, kind, stream) +1
#include "shim/cuda_api.def"
#undef BILLOW_API
};
}  // namespace simcuda
#define BILLOW_API(symbol, name, since, arguments, kind, stream) extern "C" void symbol();
#include "shim/cuda_api.def"
#undef BILLOW_API
namespace simcuda {
extern void (*const functions[api_total])();
void (*const functions[api_total])() = {
#define BILLOW_API(symbol, name, since, arguments, kind, stream) &::symbol,
#include "shim/cuda_api.def"
#undef BILLOW_API
};
}  // namespace simcuda
