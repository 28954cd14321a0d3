#include "advise/answer/launch.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace billow::advise {
namespace {

// Of log-normal lengths, what one in a thousand exceeds.
double rare_length(double mean, double variation) {
  constexpr double z = 3.0902;
  const double variance = std::log(1 + variation * variation);
  return mean * std::exp(z * std::sqrt(variance) - variance / 2);
}

enum class Conversion { none, quantize, dtype, another };

// Engines in Python turn a 16-bit checkpoint into FP8 or another 16-bit form as they load it.
Conversion conversion(const Candidate& c, const Request& request) {
  if (c.native)
    return Conversion::none;
  if (request.engine == "trtllm" || request.model.quantized)
    return Conversion::another;
  if (c.precision == Precision::fp8)
    return Conversion::quantize;
  return weight_bytes(c.precision) >= 2 ? Conversion::dtype : Conversion::another;
}

std::string placeholder(const Candidate& c) {
  std::string name = precision_name(c.precision);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char x) { return x >= 'a' && x <= 'z' ? static_cast<char>(x - 32) : x; });
  return "YOUR-" + name + "-CHECKPOINT";
}

// A number of parameters does not name a checkpoint.
std::string base_name(const Request& request) {
  return request.model.name.empty() || model_of_size(request.model.name) ? std::string("MODEL")
                                                                         : request.model.name;
}

std::string dtype_name(Precision p) {
  return p == Precision::fp16 ? "float16" : p == Precision::fp32 ? "float32" : "bfloat16";
}

std::string model_words(const Candidate& c, const Request& request) {
  switch (conversion(c, request)) {
    case Conversion::none:
      return base_name(request);
    case Conversion::quantize:
      return base_name(request) + " --quantization fp8";
    case Conversion::dtype:
      return base_name(request) + " --dtype " + dtype_name(c.precision);
    case Conversion::another:
      return placeholder(c);
  }
  return base_name(request);
}

}  // namespace

double longest_sequence(const Candidate& c, const Request& request) {
  if (request.context > 0)
    return request.context;
  const double mean = std::ceil(request.input + request.output);
  double longest = rare_length(request.input, request.variation.input) +
                   rare_length(request.output, request.variation.output);
  if (!request.lengths.empty()) {
    longest = 0;
    for (auto& a : request.lengths)
      longest = std::max(longest, static_cast<double>(a.input) + a.output);
  }
  longest = std::ceil(longest / 1024) * 1024;
  // An engine refuses to start if the cache does not hold one sequence of this length.
  longest = std::min(longest, std::floor(c.memory.sequences_max) * mean);
  if (request.model.context_max > 0)
    longest = std::min(longest, static_cast<double>(request.model.context_max));
  return std::max(longest, mean);
}

std::string conversion_text(const Candidate& c, const Request& request) {
  switch (conversion(c, request)) {
    case Conversion::none:
      return {};
    case Conversion::quantize:
    case Conversion::dtype:
      return "converted as it is loaded";
    case Conversion::another:
      return "needs a checkpoint in this precision";
  }
  return {};
}

std::string checkpoint_note(const Candidate& c, const Request& request) {
  if (conversion(c, request) != Conversion::another)
    return {};
  return fmt::format(
      "{} in the launch command stands for a copy of {} in {}, yours or a published one: {} does "
      "not convert to it while loading",
      placeholder(c), request.model.name.empty() ? "the model" : request.model.name,
      precision_name(c.precision), request.engine);
}

std::string launch_text(const Candidate& c, const Request& request) {
  const double length = longest_sequence(c, request);
  const std::string name = model_words(c, request);
  const bool eager = request.extras.eager;
  std::string serve =
      request.engine == "sglang"
          ? fmt::format(
                "python3 -m sglang.launch_server --model-path {} --tp {} --context-length {:.0f}{} "
                "--port $PORT",
                name, c.parallelism.tensor, length, eager ? " --disable-cuda-graph" : "")
      : request.engine == "trtllm"
          ? fmt::format("trtllm-serve {} --tp_size {} --max_seq_len {:.0f} --port $PORT", name,
                        c.parallelism.tensor, length)
          : fmt::format(
                "vllm serve {} --tensor-parallel-size {} --max-model-len {:.0f}{} --port $PORT",
                name, c.parallelism.tensor, length, eager ? " --enforce-eager" : "");
  const std::string gpus = !c.mig.empty() ? "--mig " + c.mig
                           : c.part < 1   ? fmt::format("--gpus {:g}", c.part)
                                          : fmt::format("--gpus {}", c.parallelism.gpus());
  return fmt::format("billow deploy llm {} --gpu-type {} --min {} --max {} -- {}", gpus,
                     c.own_type.empty() ? c.gpu->name : shell_quote(c.own_type), c.replicas,
                     c.replicas + 1, serve);
}

}  // namespace billow::advise
