// From a model, a service level and a load to a GPU, a count, an instance and a price: scans the
// whole catalogue, computes each candidate, and returns the cheapest that meets everything, the
// runner-up, and what would change the answer.
//
// Invariants: nothing is recommended that does not fit or that has no latency; a missing price is
// "unknown" and never zero; the answer says which constraint binds.
#pragma once

#include "advise/calibration.h"
#include "advise/load/queueing.h"
#include "advise/training/split.h"

namespace billow::advise {

// GPUs this installation has, as the caller knows them.
struct FleetGpu {
  std::string gpu;  // catalogue name or alias
  int per_node = 1, nodes = 1;
  double usd_per_gpu_h = 0;  // 0: unknown
  bool slices = true;        // may be shared
  bool whole = true;         // may be used whole; false: partitioned into MIG instances
  struct Mig {
    std::string name;
    double memory_gb = 0;
    int sevenths = 0;
  };
  std::vector<Mig> mig;  // shapes it is or can be cut into
};

// Which requests a service level is about: the mean of all, or all but the slowest 50, 5 or 1 %.
enum class Percentile { mean, p50, p95, p99 };
const char* percentile_name(Percentile p);
Result<Percentile> parse_percentile(std::string_view text);
// The variation of log-normal lengths with this mean and 95th percentile.
double variation_of(double mean, double p95);

// How the GPUs of a replica share its work: tensor ranks; attention by data ranks with the experts
// spread over all of them; or tensor ranks that only decode, with prefill workers beside them.
enum class Way { tensor, data_attention, separate_prefill };
const char* way_name(Way way);
Result<Way> parse_way(std::string_view text);

struct Request {
  ModelShape model;
  std::vector<Precision> precisions;  // empty: the checkpoint's own and what the GPU runs well
  double context = 0;                 // longest sequence; 0: input + output
  double input = 1024, output = 256;
  std::optional<double> ttft_ms_max, tokens_per_s_min;
  Percentile percentile = Percentile::mean;
  LengthSpread variation;        // of the lengths around input and output
  std::vector<Arrival> lengths;  // of a trace, instead
  double rps = 0, users = 0;     // one of them; both 0: one user
  std::string engine = "vllm", version;
  ServingExtras extras{};
  Way way = Way::tensor;
  OfferFilter offers;
  std::vector<FleetGpu> fleet;  // not empty: recommend among these
  bool spot = false;            // rank by spot price
  bool any_offer = false;       // marketplaces and consumer cards too
  double chance_min = 0.9;      // of meeting the service level
  WallTime now;
};

struct Offered {
  const Instance* instance = nullptr;
  std::string region;
  int instances = 0;
  std::optional<double> on_demand_month, spot_month, committed_1y_month,
      committed_3y_month;  // USD, of all instances
  std::string price_date;
  std::optional<std::int64_t> price_age_days;
};

struct Candidate {
  const GpuSpec* gpu = nullptr;
  Precision precision = Precision::bf16;
  bool native = false;  // the checkpoint as it is
  Parallelism parallelism;
  int prefill_gpus = 0;    // of a replica: its separate prefill workers, beside `parallelism`
  Memory memory;           // at the load below
  double concurrency = 0;  // sequences at once per replica
  Prediction latency;      // at that load
  double rps_replica = 0, tokens_per_s_replica = 0;
  int replicas = 0, gpus = 0;
  int replica_gpus() const { return parallelism.gpus() + prefill_gpus; }
  std::optional<Offered> offer;  // the cheapest
  std::string slice;             // of the fleet: "0.5 of one H100-SXM", "MIG 2g.20gb", "whole"
  std::string own_type, mig;     // of the fleet: the GPU type as jobs name it; the MIG profile
  double part = 1;               // of the fleet: the part of a card
  std::string binding;           // "memory", "ttft", "tokens per second", "throughput"
  std::string limit;             // the figure that binds, in words; empty: none
  bool sure = false;             // the upper bounds meet the service level too
  double chance = 1;             // of meeting the service level, from the errors of the prediction
  std::optional<Tails> tails;    // at that load
  double miss = 0;               // by which factor the percentile missed the service level
  std::size_t place = 0;         // where it was found, for the scan
  std::optional<double> usd_per_million;  // output tokens at the requested load
  double worth_month = 0;  // own hardware: what it would cost to rent; 0: unknown or rented
};

struct Check {
  std::string rule;
  bool good = true;
  std::string why;
};

// One load of one replica: what more users cost in latency and save in money.
struct CurvePoint {
  double concurrency = 0, ttft_ms = 0, tpot_ms = 0, rps = 0;
  std::optional<double> usd_per_million;  // output tokens, of a replica kept this busy
};

// Another way to serve than the answer's (ways.h), at its best load.
struct OtherWay {
  std::string name;
  Parallelism parallelism;         // of the ranks that decode
  int gpus = 0, prefill_gpus = 0;  // of one unit; the former includes the latter
  double concurrency = 0, ttft_ms = 0, tpot_ms = 0, rps_gpu = 0;
  double gain = 0;  // of what one GPU serves, over the answer's way at its best load
  std::string why;
};

struct Advice {
  std::vector<std::string> notes;
  // Best first: one per GPU and precision, or for a percentile per GPU, precision and split.
  std::vector<Candidate> ranked;
  std::optional<Candidate> best, runner_up, third;
  std::vector<CurvePoint> curve;  // of the best
  std::vector<Check> checks;      // the rules of the field
  std::vector<OtherWay> ways;
  std::vector<std::string> would_change;
  struct NoFit {
    std::string gpu, why;
    bool runs = true;  // false: its rates are unknown, or it lacks every precision asked for
  };
  std::vector<NoFit> no_fit;
  int candidates_scanned = 0, offers_scanned = 0;
  std::string reserved_mix;
};

// infeasible if nothing in the catalogue (or the fleet) holds the model or meets the service level;
// the error names the nearest.
Result<Advice> recommend(const Request& request,
                         const Catalogue& catalogue,
                         const Calibration& calibration);

// Hours between interruptions of one spot machine unless the buyer knows: an assumption, since no
// provider publishes them and prices do not tell.
inline constexpr double spot_interruptions_h = 24;

struct TrainingRequest {
  ModelShape model;
  Tuning tuning = Tuning::full;
  double sequence = 4096, micro_batch = 1;
  double tokens = 0;                      // to train on; 0: unknown, rates only
  std::optional<double> deadline_h;       // the training must end within
  std::optional<double> checkpoint_s;     // time to write one checkpoint, if measured
  std::optional<double> interruptions_h;  // between interruptions, if the buyer knows
  OfferFilter offers;
  bool any_offer = false;  // marketplaces and consumer cards too
  WallTime now;
};
struct TrainingCandidate {
  const GpuSpec* gpu = nullptr;
  const Instance* instance = nullptr;
  int nodes = 1, gpus = 1;
  TrainingPlan plan;
  TrainingMemory memory;
  double tokens_per_s = 0;
  double exchange_share = 0;    // of a step's time that goes into communication
  std::optional<double> hours;  // of the whole training, if its tokens are known
  std::optional<double> usd_h, usd_total, spot_usd_h;
  double checkpoint_minutes = 0;  // Young/Daly, on spot
  double checkpoint_cost_s = 0, interruptions_h = spot_interruptions_h;
  std::string region, price_date;
};
struct TrainingAdvice {
  std::vector<TrainingCandidate> ranked;
  std::vector<Check> checks;
  std::vector<std::string> notes;
};
// "36.5 h", "12.3 days", "42.6 years".
std::string time_text(double hours);
// The part of a GPU's memory that training may use.
double training_usable_bytes(const GpuSpec& gpu);
Result<TrainingAdvice> recommend_training(const TrainingRequest& request,
                                          const Catalogue& catalogue);

// Young's and Daly's interval between checkpoints: sqrt(2 · cost · mean time between
// interruptions).
double checkpoint_interval_s(double cost_s, double mtbf_s);
// What a year of published spot prices of an instance says; nothing if there are none.
struct SpotHistory {
  double ratio_median = 0, ratio_p90 = 0;  // spot over on-demand
  double scarce_share = 0;                 // of zone-days at 95 % of on-demand or more
};
std::optional<SpotHistory> spot_history(std::string_view instance);
// "33 % of on-demand at the median, …"
std::string spot_history_text(std::string_view instance);

Json advice_json(const Request& request, const Advice& advice);
std::string advice_text(const Request& request, const Advice& advice);
Json training_json(const TrainingRequest& request, const TrainingAdvice& advice);
std::string training_text(const TrainingRequest& request, const TrainingAdvice& advice);

}  // namespace billow::advise
