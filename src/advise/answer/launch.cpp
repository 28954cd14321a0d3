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

namespace {

// How the engine is told to split the model. Ranks that attend to sequences of their own share the
// experts; stages lie on machines of their own.
std::string split_words(const Candidate& c, const std::string& engine) {
  const auto& p = c.parallelism;
  const bool data = p.attention_data > 1, stages = p.pipeline > 1;
  if (engine == "sglang")
    return fmt::format(
        "--tp {}{}{}", p.tensor,
        data ? fmt::format(" --dp {0} --enable-dp-attention --ep {0}", p.tensor) : "",
        stages ? fmt::format(" --pp {}", p.pipeline) : "");
  if (engine == "trtllm")
    return fmt::format(
        "--tp_size {}{}{}", p.tensor,
        data ? fmt::format(" --ep_size {} --extra_llm_api_options dp.yaml", p.tensor) : "",
        stages ? fmt::format(" --pp_size {}", p.pipeline) : "");
  return fmt::format("{} {}{}{}", data ? "--data-parallel-size" : "--tensor-parallel-size",
                     p.tensor, data ? " --enable-expert-parallel" : "",
                     stages ? fmt::format(" --pipeline-parallel-size {}", p.pipeline) : "");
}

std::string serve_words(const Candidate& c, const Request& request) {
  const double length = longest_sequence(c, request);
  const std::string name = model_words(c, request), split = split_words(c, request.engine);
  const bool eager = request.extras.eager;
  if (request.engine == "sglang")
    return fmt::format(
        "python3 -m sglang.launch_server --model-path {} {} --context-length {:.0f}{}", name, split,
        length, eager ? " --disable-cuda-graph" : "");
  if (request.engine == "trtllm")
    return fmt::format("trtllm-serve {} {} --max_seq_len {:.0f}", name, split, length);
  return fmt::format("vllm serve {} {} --max-model-len {:.0f}{}", name, split, length,
                     eager ? " --enforce-eager" : "");
}

// What makes a worker one that only prefills, or only decodes.
std::string role_words(const std::string& engine, bool prefill) {
  if (engine == "sglang")
    return fmt::format(" --disaggregation-mode {}", prefill ? "prefill" : "decode");
  if (engine == "trtllm")
    return {};
  return fmt::format(
      " --kv-transfer-config \'{{\"kv_connector\":\"NixlConnector\",\"kv_role\":\"{}\"}}\'",
      prefill ? "kv_producer" : "kv_consumer");
}

// A replica on several machines is a gang: every machine starts the engine with its own rank.
std::string gang_text(const Candidate& c, const Request& request, const std::string& type) {
  const int nodes = c.parallelism.pipeline;
  const std::string ranks =
      request.engine == "sglang" ? fmt::format(
                                       " --nnodes {} --node-rank $NODE_RANK --dist-init-addr "
                                       "$MASTER_ADDR:$MASTER_PORT --port 8000",
                                       nodes)
      : request.engine == "trtllm"
          ? std::string(" --port 8000")
          : fmt::format(
                " --nnodes {} --node-rank $NODE_RANK --master-addr $MASTER_ADDR --port 8000",
                nodes);
  return fmt::format("billow run --nodes {} --gpus {} --gpu-type {} -- bash -c '{}{}'", nodes,
                     c.parallelism.tensor, type, serve_words(c, request), ranks);
}

}  // namespace

std::string launch_text(const Candidate& c, const Request& request) {
  const std::string type = c.own_type.empty() ? c.gpu->name : shell_quote(c.own_type);
  const bool whole_machines = c.offer && c.offer->instance && c.parallelism.pipeline > 1 &&
                              c.offer->instance->gpus < c.parallelism.gpus();
  if (whole_machines)
    return gang_text(c, request, type);
  const std::string gpus = !c.mig.empty() ? "--mig " + c.mig
                           : c.part < 1   ? fmt::format("--gpus {:g}", c.part)
                                          : fmt::format("--gpus {}", c.parallelism.gpus());
  auto deploy = [&](const char* name, int least, int most, const std::string& role) {
    return fmt::format("billow deploy {} {} --gpu-type {} --min {} --max {} -- {}{} --port $PORT",
                       name, gpus, type, least, most, serve_words(c, request), role);
  };
  if (c.prefill_gpus == 0)
    return deploy("llm", c.replicas, c.replicas + 1, "");
  const int workers = c.replicas * c.prefill_gpus / c.parallelism.gpus();
  return deploy("llm-prefill", workers, workers, role_words(request.engine, true)) + "\n        " +
         deploy("llm-decode", c.replicas, c.replicas, role_words(request.engine, false)) +
         "\n        and the engine's own router for separate prefill in front of both";
}

}  // namespace billow::advise
