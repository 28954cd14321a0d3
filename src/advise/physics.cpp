#include "advise/physics.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace billow::advise {
namespace {

// How much longer than at 100 % of the datasheet each part takes with good kernels, and the fixed
// costs. Chosen so that models and GPUs left out are predicted best (bench/advise/report.cpp); the
// calibration scales each by a few ten percent. Hardly any measured step is bound by arithmetic, so
// that factor is from published throughput: half the tensor rate.
constexpr double weights_over = 1.3, experts_over = 1.5, cache_over = 1.35, arithmetic_over = 2.0,
                 prefill_over = 1.6, attention_over = 2.5, prefill_weights_over = 1.04;
constexpr double decode_attention_over = 1.6;
constexpr double layer_ms = 0.022, moe_layer_ms = 0.075, indexer_layer_ms = 0.06, link_over = 4,
                 sequence_ms = 0.005, prefill_layer_ms = 0.2;
// An exchange between ranks of a node takes a few microseconds, and longer with more ranks.
constexpr double exchange_ms = 0.0015, exchange_ranks = 4;
// Between nodes a GPU has 400 Gbit/s, and an exchange takes a few microseconds more.
constexpr double network_bytes = 50e9, network_ms = 0.012;
constexpr double floor_ms = 1e-9;
// A step that was captured as a CUDA graph is launched at once. Otherwise the host launches its
// kernels one by one: the GPU waits for it unless it has enough to do. Engines capture steps up to
// a batch; one that runs in Python takes longer for a layer.
constexpr double host_layer_python_ms = 0.4, host_layer_ms = 0.1;
double graph_batch_max(const ServingRow& row) {
  // TGI captures steps since version 2.
  if (row.engine.starts_with("tgi"))
    return parse_double(row.version.substr(0, row.version.find('.'))).value_or(2) < 2 ? 0 : 32;
  return row.engine == "trtllm" ? 2048 : row.engine == "sglang" ? 256 : 512;
}

// Engines keep a few GB beside weights and cache. A measured configuration ran, so the estimate
// leans to more room; whether a configuration fits at all is memory.h's question.
constexpr double engine_share = 0.95, engine_bytes = 2.5e9;

// Longer of two that overlap, without an edge.
double overlap(double a, double b) {
  return std::cbrt(a * a * a + b * b * b);
}

double replica_load(const ServingRow& row) {
  return std::max(1.0, row.concurrency / std::max(1.0, row.decode_workers));
}

Work decode_work(const ServingRow& row, double batch) {
  return work_of(*row.shape, row.kv, row.parallelism, {batch, row.input, row.output, row.extras});
}

// Starting the kernels of every layer: mixtures route, sort and combine, and sparse attention first
// scores and selects its tokens.
double launch_ms(const ModelShape& shape) {
  double ms = 0;
  for (auto& layer : shape.layers)
    ms += layer_ms + (layer.experts > 0 ? moe_layer_ms : 0) +
          (layer.attention.index_topk > 0 ? indexer_layer_ms : 0);
  return ms;
}

// What launching the kernels of a step adds to the `gpu_ms` that they take.
double host_wait_ms(const ServingRow& row, const Work& w, double gpu_ms) {
  const double tokens = w.tokens_rank * (1 + row.extras.draft_tokens);
  if (!row.extras.eager && tokens <= graph_batch_max(row))
    return 0;
  const double host = w.layers * (row.engine == "trtllm" ? host_layer_ms : host_layer_python_ms);
  return overlap(gpu_ms, host) - gpu_ms;
}

struct Prefill {
  double ms = 0;     // of one request, on good kernels
  double least = 0;  // at 100 % of the datasheet
};
Prefill prefill_of(const Work& w, const Rates& r) {
  double matrix = w.prefill_flops / r.matrix * 1e3,
         attention = w.prefill_attention_flops / r.half * 1e3;
  return {matrix * prefill_over + attention * attention_over,
          (w.prefill_flops + w.prefill_attention_flops) / std::max(r.matrix, r.half) * 1e3};
}

}  // namespace

Rates rates_of(const ServingRow& row) {
  auto& g = *row.gpu;
  Rates r;
  r.bandwidth = g.bandwidth_gb_s.value_or(0) * 1e9;
  r.half = g.bf16_tflops.value_or(g.fp16_tflops.value_or(0)) * 1e12;
  auto p = parse_precision(row.precision).value_or(Precision::bf16);
  r.matrix = r.half;
  if (p == Precision::fp8)
    r.matrix = g.fp8_tflops.value_or(r.half / 1e12) * 1e12;
  if (p == Precision::fp4 || p == Precision::nvfp4)
    r.matrix = g.fp4_tflops.value_or(r.half / 1e12) * 1e12;
  if (p == Precision::int8)
    r.matrix = g.int8_tops.value_or(r.half / 1e12) * 1e12;
  // Experts stored as MXFP4 meet activations of 16 bits, or of 8 where there are 4-bit units: no
  // engine multiplies two numbers of 4 bits with them.
  if (row.shape->native == Precision::fp4 && (p == Precision::fp4 || p == Precision::fp8))
    r.matrix = g.fp4_tflops ? g.fp8_tflops.value_or(0) * 1e12 : r.half;
  r.matrix = std::max(r.matrix, r.half);  // slower units are not used
  // Attention runs in the precision of its cache, and never below eight bits.
  const bool small_cache = row.kv == Precision::fp8 || row.kv == Precision::fp4;
  r.attention = std::max(r.half, small_cache ? g.fp8_tflops.value_or(0) * 1e12 : 0);
  r.link = std::max(32.0, g.nvlink_gb_s.value_or(0) / 2) * 1e9;
  if (row.nodes > 1)
    r.link = std::min(r.link, network_bytes);
  return r;
}

double decode_batch(const ServingRow& row) {
  double load = replica_load(row);
  if (!row.gpu->memory_mib)
    return load;
  auto& p = row.parallelism;
  double capacity = static_cast<double>(*row.gpu->memory_mib) * 1048576;
  int attention_ranks = std::max(1, p.tensor / std::max(1, p.attention_data));
  double adapters = row.extras.adapters > 0
                        ? row.extras.adapters * adapter_bytes(*row.shape, row.extras.adapter_rank) /
                              attention_ranks
                        : 0;
  double free = std::max(0.02 * capacity, engine_share * capacity - adapters -
                                              weight_bytes_per_gpu(*row.shape, p) - engine_bytes);
  // Caches are paged and sequences of all ages share them, so one is counted a little past its
  // middle.
  double one = kv_bytes(*row.shape, row.kv, row.input + 0.6 * row.output, attention_ranks) /
               std::max(1, p.pipeline);
  double room = one > 0 ? std::max(1.0, free / one) * std::max(1, p.attention_data) : load;
  return std::min(load, room);
}

Roofline roofline_of(const ServingRow& row) {
  auto r = rates_of(row);
  auto w = decode_work(row, decode_batch(row));
  double bytes = (w.weight_bytes + w.expert_bytes + w.kv_bytes) / r.bandwidth * 1e3;
  double operations = w.step_flops / r.matrix * 1e3 + w.step_attention_flops / r.attention * 1e3;
  double ranks = row.disaggregated && row.prefill_rank_gpus > 0
                     ? row.parallelism.tensor / row.prefill_rank_gpus
                     : 1;
  return {std::max(bytes, operations) / row.extras.tokens_per_step(),
          std::max(prefill_of(w, r).least * ranks, w.weight_bytes / r.bandwidth * 1e3 * ranks)};
}

std::vector<ServingRow> possible_runs(std::vector<ServingRow> rows) {
  constexpr double impossible_share = 0.3;
  auto impossible = [](const ServingRow& row) {
    return *row.tpot_ms < roofline_of(row).tpot_ms;
  };
  struct Count {
    double all = 0, impossible = 0;
  };
  std::map<std::string, Count> counts;
  for (auto& row : rows) {
    auto& count = counts[combination_of(row)];
    ++count.all;
    count.impossible += impossible(row);
  }
  std::erase_if(rows, [&](const ServingRow& row) {
    const auto& count = counts[combination_of(row)];
    return impossible(row) || count.impossible > impossible_share * count.all;
  });
  return rows;
}

double prefill_ms(const ServingRow& row) {
  return prefill_of(decode_work(row, 1), rates_of(row)).ms;
}

const std::vector<std::string>& tpot_term_names() {
  static const std::vector<std::string> names = {
      "per layer", "weights",         "experts",         "KV cache",          "arithmetic",
      "exchanges", "exchanged bytes", "others' prefill", "starting prefills", "per sequence"};
  return names;
}

Terms terms_of(const ServingRow& row) {
  auto r = rates_of(row);
  double load = replica_load(row), batch = decode_batch(row);
  auto w = decode_work(row, batch);
  auto& p = row.parallelism;
  double ranks = p.tensor, ring = ranks > 1 ? 2 * (ranks - 1) / ranks : 0;
  double gained = row.extras.tokens_per_step();
  double weights = (w.weight_bytes + w.draft_bytes) / r.bandwidth * 1e3 * weights_over,
         experts = w.expert_bytes / r.bandwidth * 1e3 * experts_over,
         cache = w.kv_bytes / r.bandwidth * 1e3 * cache_over;
  double memory = weights + experts + cache;
  double arithmetic = w.step_flops / r.matrix * 1e3 * arithmetic_over +
                      w.step_attention_flops / r.attention * 1e3 * decode_attention_over;
  auto prefill = prefill_of(w, r);
  // In a shared engine each step also carries the prefills of arriving requests: batch/output of
  // them per step. Pipeline stages work on them side by side. Requests that arrive within one step
  // are prefilled together, and a prefill reads all weights, however short it is.
  double arrivals = row.disaggregated ? 0 : batch * gained / row.output / std::max(1, p.pipeline);
  double often = 1 - std::exp(-arrivals), together = often > 0 ? arrivals / often : 0;
  double prefills = often * overlap(together * prefill.ms,
                                    w.prefill_bytes / r.bandwidth * 1e3 * prefill_weights_over);
  double launch = launch_ms(*row.shape);
  Terms t;
  t.tpot = {
      launch,
      weights,
      experts + floor_ms,
      cache + floor_ms,
      overlap(memory, arithmetic) - memory + floor_ms,
      w.exchanges * (exchange_ms * (exchange_ranks + ranks) + (row.nodes > 1 ? network_ms : 0)) +
          floor_ms,
      w.exchange_bytes / r.link * ring * 1e3 * link_over + floor_ms,
      prefills + floor_ms,
      often * w.layers * prefill_layer_ms + floor_ms,
      w.tokens_rank * sequence_ms};
  t.tpot[0] +=
      host_wait_ms(row, w, t.tpot[0] + overlap(memory, arithmetic) + t.tpot[5] + t.tpot[6]);
  double step = 0;
  for (double& ms : t.tpot) {
    ms /= gained;  // per token, of which a step with drafts gains several
    step += ms;
  }
  double own = prefill.ms, waiting = load;
  if (row.disaggregated) {
    own *= ranks / std::max(1.0, row.prefill_rank_gpus);
    // If the number of prefill workers is unknown, assume that larger loads had more of them, but
    // not in proportion.
    double workers = row.prefill_told ? row.prefill_gpus / std::max(1.0, row.prefill_rank_gpus)
                                      : std::pow(row.concurrency / 64, 0.45);
    waiting = row.concurrency / std::max(1.0, workers);
  }
  t.ttft = {launch + 5.0, own, w.prefill_bytes / r.bandwidth * 1e3, step, own * std::sqrt(waiting),
            own * waiting * 0.05, w.layers * 5e-3 * waiting * 0.1,
            // Beyond the memory, a request waits until one of those that decode ends.
            std::max(0.0, load / batch - 1) * row.output * step * 0.7 + floor_ms};
  return t;
}

}  // namespace billow::advise
