// Watching one job run: its output line by line with times, and the readings of the GPUs it holds,
// until it ends. What `profile` and `compare` stand on.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "advise/rightsize.h"
#include "base/clock.h"
#include "base/json.h"
#include "client/frame/client.h"

namespace billow::client {

// Lines of progress: those that hold `pattern`. Two of them a step apart give a step's time.
class StepClock {
 public:
  explicit StepClock(std::string pattern) : pattern_(std::move(pattern)) {}
  void feed(std::string_view output, SteadyTime at);
  int steps() const { return static_cast<int>(at_.size()); }
  // The middle time between two, the first few left out as warm-up where there are enough.
  std::optional<double> step_s() const;

 private:
  void line(std::string_view text, SteadyTime at);
  std::string pattern_, rest_;
  std::vector<SteadyTime> at_;
};

struct Observed {
  Json job;  // the last document
  advise::RunMeasured run;
  double seconds =
      0;  // it ran, by its lease's own account where the price tells it, else as seen from here
  bool interrupted = false;
  std::set<std::string> gpu_types;  // it ran on
};

struct ObserveOptions {
  std::string job;
  std::string step_pattern = "step";
  Duration at_most{};              // 0: until it ends
  bool show_output = true;         // on stdout and stderr, as it comes
  bool stop_on_interrupt = false;  // Ctrl-C stops the job; else it only ends the watching
  std::function<void(const Json& job)> on_change;
};
Result<Observed> observe(Client& client, const ObserveOptions& options);

// The GPUs of the head's nodes, for the advisor.
Result<std::vector<advise::FleetGpu>> fleet_of_head(Client& client, const Catalogue& catalogue);

}  // namespace billow::client
