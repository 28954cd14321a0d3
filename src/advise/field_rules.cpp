#include "advise/field_rules.h"

#include <cmath>

#include <fmt/format.h>

namespace billow::advise {
namespace {

// "70B at INT8 on an A100-80": true for the weights, but people forget how little is left for the
// cache.
Check seventy_on_eighty(const Request& request) {
  constexpr double card = 81920.0 * 1048576;
  double context = request.context > 0 ? request.context : request.input + request.output;
  auto shape = at_precision(request.model, Precision::int8);
  auto memory =
      serving_memory(shape, shape.kv_native, {}, {.context = context, .sequences = 1}, card);
  double left = memory.usable - (memory.total() - memory.kv);
  double token = kv_per_token(shape, shape.kv_native).bytes;
  if (!memory.fits())
    return {
        "70B at INT8 on A100-80", false,
        fmt::format("at INT8 the weights take {:.1f} of the {:.1f} GB usable on one A100-80, and "
                    "the rest does not hold one sequence of {:.0f} tokens{}: use two GPUs, or INT4",
                    memory.weights / 1e9, memory.usable / 1e9, context,
                    left > 0 && token > 0 ? fmt::format(" (only {:.0f})", left / token) : "")};
  return {"70B at INT8 on A100-80", true,
          fmt::format("at INT8 it fits on one A100-80 with {:.1f} GB left for the cache: {:.0f} "
                      "concurrent sequences of {:.0f} tokens, or one of {:.0f}",
                      left / 1e9, memory.sequences_max, context,
                      token > 0 ? std::floor(left / token) : 0)};
}

}  // namespace

std::vector<Check> field_rules(const Request& request, const Advice& advice) {
  std::vector<Check> out;
  auto& b = *advice.best;
  double billions = request.model.parameters() / 1e9;
  if (billions > 5 && billions < 9) {
    bool small = b.gpu->memory_mib.value_or(0) <= 49152;
    out.push_back({"L4 or A10G for 7B", small,
                   small ? "a GPU of 24 to 48 GB holds it; no larger one is paid for"
                         : "the load or the service level needs more than a 24 GB GPU"});
  }
  if (b.parallelism.tensor > 1) {
    bool linked =
        !b.offer || !b.offer->instance ||
        (b.offer->instance->fabric != Fabric::pcie && b.offer->instance->fabric != Fabric::single);
    out.push_back(
        {"NVLink before tensor parallelism", linked,
         linked ? "the ranks exchange activations of every layer over NVLink or a similar fabric"
                : "two ranks over PCIe: exchanges may cost more than predicted; an instance with "
                  "NVLink is safer"});
  } else {
    out.push_back(
        {"NVLink before tensor parallelism", true, "one GPU holds the model: no fabric is needed"});
  }
  out.push_back(
      {"one node before many", b.parallelism.gpus() <= 8,
       b.parallelism.gpus() <= 8
           ? "each replica stays inside one machine; replicas need no fast network between them"
           : "a replica spans machines"});
  bool training_part =
      b.gpu->nvlink_gb_s.value_or(0) >= 900 && b.concurrency < 8 && b.replicas == 1;
  out.push_back({"inference hardware for inference", !training_part,
                 training_part ? "a training GPU for a small load: a smaller GPU or a slice would "
                                 "do if one met the service level"
                               : "the load uses the GPU well"});
  if (billions > 60 && billions < 80)
    out.push_back(seventy_on_eighty(request));
  out.push_back({"reserve the baseline only", true,
                 "commit to the GPUs that run around the clock; use on-demand for the rest (see "
                 "billow plan)"});
  return out;
}

}  // namespace billow::advise
