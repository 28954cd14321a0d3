#include "advise/fit/effects.h"

#include <cmath>

#include "advise/physics.h"
#include "base/text.h"

namespace billow::advise {
namespace {

std::string ranks_key(const ServingRow& row) {
  auto stages = row.parallelism.pipeline;
  return fmt::format("{}{}{}{}{}", row.disaggregated ? "d" : "a", row.parallelism.tensor,
                     stages > 1 ? fmt::format("p{}", stages) : "",
                     row.parallelism.attention_data > 1 ? "d" : "",
                     row.parallelism.expert > 1 ? "e" : "");
}

}  // namespace

std::string series_key(const ServingRow& row) {
  return fmt::format("{}/{}/{:.0f}x{:.0f}", combination_of(row), ranks_key(row), row.input,
                     row.output);
}

std::string one_word(std::string text) {
  for (char& c : text)
    if (c == ' ' || c == '\t' || c == '\n')
      c = '_';
  return text.substr(0, 64);
}

std::string architecture_word(const GpuSpec& gpu) {
  auto& c = gpu.compute_capability;
  return c.empty() ? "unknown" : c.substr(0, c.find('.'));
}

namespace {

// How a model attends decides which kernels run, whatever its size.
std::string attention_word(const ModelShape& shape) {
  bool latent = false, sparse = false, recurrent = false, window = false;
  for (auto& layer : shape.layers) {
    auto& a = layer.attention;
    latent |= a.kind == AttentionKind::mla;
    sparse |= a.index_topk > 0;
    recurrent |= a.kind == AttentionKind::linear || a.kind == AttentionKind::mamba;
    window |= a.window > 0;
  }
  return sparse      ? "sparse"
         : latent    ? "latent"
         : recurrent ? "recurrent"
         : window    ? "window"
                     : "full";
}

struct Keys {
  std::string family, gpu, architecture, engine, precision, mix, attention, mode, ranks, group,
      version;
};
Keys keys_of(const ServingRow& row) {
  return {row.family,
          row.gpu->name,
          one_word(architecture_word(*row.gpu)),
          one_word(row.engine),
          one_word(row.precision),
          row.shape->is_moe() ? "moe" : "dense",
          attention_word(*row.shape),
          row.disaggregated ? "apart" : "together",
          ranks_key(row),
          one_word(combination_of(row)),
          one_word(row.engine + "/" + row.version)};
}

// How far an efficiency may vary between engines, GPUs, families … before any measurement. What an
// unseen model or GPU shares with others (engine, architecture, precision) is held tight: wider, it
// fits better and predicts worse, as leaving models and GPUs out shows. How a model attends and
// whether it is a mixture decide which kernels run, so these vary more.
struct Spreads {
  double all, engine, gpu, architecture, precision, mix, engine_mix, attention, mode, family,
      schedule, ranks, family_gpu_engine, group, config;
};
constexpr Spreads tpot_spreads{.all = 0.074,
                               .engine = 0.06,
                               .gpu = 0.067,
                               .architecture = 0.03,
                               .precision = 0.044,
                               .mix = 0.15,
                               .engine_mix = 0.1,
                               .attention = 0.2,
                               .mode = 0.11,
                               .family = 0.1,
                               .schedule = 0.4,
                               .ranks = 0.04,
                               .family_gpu_engine = 0.06,
                               .group = 0.06,
                               .config = 0.067};
// First tokens depend on queueing, which differs greatly between engines.
constexpr Spreads ttft_spreads{.all = 1.05,
                               .engine = 0.264,
                               .gpu = 0.11,
                               .architecture = 0.066,
                               .precision = 0.176,
                               .mix = 0.176,
                               .engine_mix = 0.1,
                               .attention = 0.22,
                               .mode = 0.242,
                               .family = 0.286,
                               .schedule = 0.88,
                               .ranks = 0.088,
                               .family_gpu_engine = 0.132,
                               .group = 0.132,
                               .config = 0.11};

// Effects on each physical term. Engines that prefill first leave the prefill out of the time
// between tokens: `scheduled` are the terms that this concerns.
std::vector<Effect> term_effects(const Keys& k, const Spreads& s, unsigned scheduled) {
  const std::string host = k.family + "/" + k.gpu + "/" + k.engine;
  return {{"all", s.all},
          {"engine=" + k.engine, s.engine},
          {"gpu=" + k.gpu, s.gpu},
          {"architecture=" + k.architecture, s.architecture},
          {"precision=" + k.precision, s.precision},
          {"mix=" + k.mix, s.mix},
          {"engine-mix=" + k.engine + "/" + k.mix, s.engine_mix},
          {"attention=" + k.attention, s.attention},
          {"mode=" + k.mode, s.mode},
          {"family=" + k.family, s.family},
          {"schedule=" + k.engine, s.schedule, scheduled},
          {"engine-ranks=" + k.engine + "/" + k.mode + (k.ranks.back() == 'e' ? "/e" : "") +
               (k.ranks.find('d', 1) != std::string::npos ? "/d" : ""),
           s.ranks},
          {"family-gpu-engine=" + host, s.family_gpu_engine},
          {"group=" + k.group, s.group},
          {"config=" + k.group + "/" + k.ranks, s.config}};
}

// Large models keep a GPU busier than small ones, and engines differ in how much that matters.
constexpr double parameters_middle = 3e10;
double size_of(const ServingRow& row) {
  return std::log(row.shape->active_parameters() / parameters_middle);
}

// How far a whole step may vary: one factor of all these was chosen, by models and GPUs left out
// twice over. Chosen one by one, they predict what had no say in the choice worse.
std::vector<Effect> whole_effects(const Keys& k, double size) {
  return {{"gpu=" + k.gpu, 0.035},
          {"engine=" + k.engine, 0.07},
          {"precision=" + k.precision, 0.042},
          {"mix=" + k.mix, 0.042},
          // How well the kernels of a combination are tuned, which says little about others.
          {"family=" + k.family, 0.14},
          {"family-gpu-engine=" + k.family + "/" + k.gpu + "/" + k.engine, 0.21},
          {"group=" + k.group, 0.21},
          {"config=" + k.group + "/" + k.ranks, 0.043},
          {"kernels=" + k.engine + "/" + k.architecture + "/" + k.precision + "/" + k.mix, 0.035},
          {"kernels=" + k.architecture + "/" + k.precision + "/" + k.mix, 0.07},
          {"size=" + k.engine, 0.105, ~0u, size},
          {"version=" + k.version, 0.07},
          {"group-version=" + k.group + "/" + k.version, 0.116}};
}

}  // namespace

Sample tpot_sample(const ServingRow& row) {
  auto k = keys_of(row);
  return {terms_of(row).tpot, term_effects(k, tpot_spreads, others_prefill_terms),
          whole_effects(k, size_of(row)), row.tpot_ms.value_or(0)};
}

Sample ttft_sample(const ServingRow& row) {
  auto k = keys_of(row);
  Sample s{terms_of(row).ttft,
           term_effects(k, ttft_spreads, ~0u),
           {{"version=" + k.version, 0.15}, {"group-version=" + k.group + "/" + k.version, 0.1}},
           row.ttft_ms.value_or(0)};
  // An engine keeps its settings for chunking and prompt order for a mix of lengths.
  s.groups.push_back(
      {fmt::format("engine-lengths={}/{:.0f}x{:.0f}", k.engine, row.input, row.output), 0.35});
  if (row.disaggregated)
    s.groups.push_back(
        {row.prefill_told ? "prefill-workers=told" : "prefill-workers=untold", 0.15});
  return s;
}

}  // namespace billow::advise
