// The statistical model of the advisor: a time is a sum of physical terms (bytes over bandwidth,
// operations over rate, a cost per layer, …), each divided by a learned efficiency. An efficiency
// is a product of effects: one for all, one for the engine, one for the GPU, one for the model
// family, down to the exact combination. Each effect is shrunk towards zero (a Gaussian prior), so
// that few data have little influence, an unseen combination falls back on its parts, and no single
// row is memorised. Fitted by Gauss-Newton on log time with a robust loss.
//
//   log T = 1/p · log Σ_j (φ_j · exp(Σ_groups θ[group][j]))^p  +  Σ_offsets δ · value
//
// p = 1 is the plain sum; p slightly below 1 lets similar terms hinder each other, as on a busy
// GPU.
//
// Invariants: the terms φ_j are ≥ 0 and one is > 0; a prediction is finite; unknown groups
// contribute nothing.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace billow::advise {

struct Effect {
  std::string key;       // "engine=vllm"
  double spread = 0.3;   // prior standard deviation of its logarithms
  unsigned terms = ~0u;  // bit j: it may scale term j
  double value = 1;      // of what the effect is a slope over; 1: it is there
};

struct Sample {
  std::vector<double> terms;    // in ms
  std::vector<Effect> groups;   // scale each term separately
  std::vector<Effect> offsets;  // scale the sum
  double measured = 0;          // ms; the fitted value
  double weight = 1;            // how much it counts in a fit
};

class EfficiencyModel {
 public:
  struct Options {
    double noise =
        0.08;  // spread of log measurements around the truth; beyond it the loss grows linearly
    double power = 1;  // p
    int steps_max = 30;
  };
  static EfficiencyModel fit(const std::vector<Sample>& samples, const Options& options);

  // Milliseconds. `terms_out`, if given, receives each term's part.
  double predict(const Sample& sample, std::vector<double>* terms_out = nullptr) const;
  // The effects of a sample looked up once, for many predictions that differ only in their terms.
  struct Resolved {
    std::vector<double> scale;  // one factor per term
    double whole = 1;
    double power = 1;
  };
  Resolved resolve(const Sample& sample) const;
  static double predict(const Resolved& resolved,
                        const std::vector<double>& terms,
                        std::vector<double>* terms_out = nullptr);
  bool knows(std::string_view key) const {
    return groups_.contains(std::string(key)) || offsets_.contains(std::string(key));
  }
  std::size_t parameters() const;

  std::string dump(std::string_view name) const;            // lines "name group key v v v …"
  Status read_line(const std::vector<std::string>& words);  // the inverse, without the name

 private:
  double power_ = 1;
  std::unordered_map<std::string, std::vector<double>> groups_;  // log efficiencies, one per term
  std::unordered_map<std::string, double> offsets_;
};

}  // namespace billow::advise
