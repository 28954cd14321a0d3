// Time to first token and time per output token of a served configuration, with an interval and its
// origin.
//
// A calibration is two efficiency models (efficiency.h), the spread of their errors on data they
// had not seen, and which configurations were measured. It is fitted from measurements
// (`Calibration::fit`), written as text, and comes inside the binary as data/calibration.txt. It
// holds no rows.
//
// Invariants: a prediction is for something that fits in memory, or it is an error; low ≤ value ≤
// high; nothing, not even the lower bound, is faster than the roofline (physics.h). An interval
// grows with the distance from what was measured.
#pragma once

#include <set>

#include "advise/fit/effects.h"
#include "advise/physics.h"

namespace billow::advise {

// Sequences of a replica up to which first tokens hardly queue.
inline constexpr double light_load_max = 16;

enum class Kind { measured, interpolated, extrapolated };
const char* kind_name(Kind kind);

struct Estimate {
  double value = 0, low = 0, high = 0;  // ms; low and high bound 80 %
};

struct Prediction {
  Estimate ttft_ms, tpot_ms;
  Kind kind = Kind::extrapolated;
  std::string basis;  // "llama 80x8192 on H100-SXM with vllm fp8, 40 measured loads"
  std::vector<std::pair<std::string, double>> tpot_parts;  // "weights" → ms: the arithmetic
};

// Which errors a fit estimates: each costs several further fits. `known`: on held-out series of
// known combinations only.
enum class Intervals { none, known, all };

class Calibration {
 public:
  // Rows without both measurements are left out. Errors are estimated by leaving out series, models
  // and GPUs in turn.
  static Result<Calibration> fit(const std::vector<ServingRow>& rows,
                                 Intervals intervals = Intervals::all);
  static Result<Calibration> parse(std::string_view text);
  static Calibration embedded();
  std::string dump() const;

  // An error (infeasible) if the weights alone do not fit, or if the GPU's rates are unknown.
  Result<Prediction> predict(const ServingRow& row) const;
  Kind kind_of(const ServingRow& row) const;
  // The effects of everything but the load, looked up once: for scanning many loads of one
  // configuration.
  // A measurement of this installation: how far the model was off, and at which load.
  struct LocalPoint {
    double concurrency = 1, input = 1, output = 1;
    std::optional<double> tpot, ttft;  // log(measured / predicted)
  };
  struct Prepared {
    EfficiencyModel::Resolved tpot, ttft;
    const std::vector<LocalPoint>* local = nullptr;
  };
  Prepared prepare(const ServingRow& row) const;
  struct Quick {
    double ttft_ms, tpot_ms;
  };
  static Quick quick(const Prepared& prepared, const ServingRow& row);
  // One step of `row.concurrency` sequences without the prompts of others.
  static double decode_ms(const Prepared& prepared, const ServingRow& row);

  // Factors from a prediction to what nine of ten measurements stay below; `wider` scales them in
  // the logarithm.
  struct Upper {
    double tpot = 1, ttft = 1;
  };
  Upper upper(const ServingRow& row, double wider = 1) const;

  // The same calibration with this installation's measurements: at a load that was measured they
  // are the answer; at others of the same model, GPU, engine and precision they correct it, the
  // nearest most.
  Calibration with_local(const std::vector<ServingRow>& measured) const;

  std::size_t parameters() const { return tpot_.parameters() + ttft_.parameters(); }
  std::size_t measured_series() const { return seen_.size(); }

 private:
  struct Spread {
    double low = -0.5, high = 0.5;
  };  // 10 % and 90 % of log(measured / predicted)
  struct Range {
    double from = 0, to = 0;
  };

  struct Extent {
    Range concurrency, input, output;
  };

  void remember(const std::vector<ServingRow>& rows);
  void remember_series(const std::string& series, Range loads);
  // What nobody measured about a row: "near" (only the shape: model, GPU, engine and precision were
  // measured together), otherwise one or more of "model", "gpu" or "architecture", and "engine".
  std::vector<const char*> unknown_parts(const ServingRow& row) const;
  Spread spread_of(std::string_view what, const ServingRow& row) const;
  void measure_errors(const std::vector<ServingRow>& rows, Intervals intervals);

  EfficiencyModel tpot_, ttft_;
  std::map<std::string, Spread> spread_;  // "tpot/near/moe"
  std::map<std::string, Range>
      seen_;  // a series (model, GPU, engine, precision, ranks, lengths) → loads measured
  std::map<std::string, Extent> groups_;  // model, GPU, engine and precision → what was measured
  Extent everything_;
  // With any measurement; a host is "GPU/engine".
  std::set<std::string> families_, hosts_, gpus_, engines_, architectures_;
  std::map<std::string, std::vector<LocalPoint>> local_;
};

// How far a prediction must stay below a limit, at light and at other loads; `wider` 0: at all.
class LoadMargin {
 public:
  LoadMargin(const Calibration& calibration, ServingRow row, double wider) {
    for (auto* part : {&light_, &busy_}) {
      row.concurrency = part == &light_ ? 1 : 2 * light_load_max;
      *part = calibration.upper(row, wider);
    }
  }
  const Calibration::Upper& at(double load) const {
    return load <= light_load_max ? light_ : busy_;
  }

 private:
  Calibration::Upper light_, busy_;
};

}  // namespace billow::advise
