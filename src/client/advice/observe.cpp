#include "client/advice/observe.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>

#include "advise/fleet.h"
#include "base/file.h"
#include "base/formats/utc.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/jobs/attachment.h"

namespace billow::client {
namespace {

constexpr Duration reading_every = milliseconds(500);
constexpr std::size_t output_line_bytes_max = 64 << 10, steps_max = 1'000'000;

SteadyTime steady() {
  return system_clock().steady();
}
double seconds_between(SteadyTime a, SteadyTime b) {
  return static_cast<double>((b - a).ns) / 1e9;
}

double quantile(std::vector<double> v, double q) {
  if (v.empty())
    return 0;
  std::sort(v.begin(), v.end());
  return v[std::min(v.size() - 1, static_cast<std::size_t>(q * static_cast<double>(v.size())))];
}

// Which cards of which nodes the job holds, and what they read.
class Readings {
 public:
  void take(Client& client, const Json& job, Observed& out) {
    for (const Json& task : job["tasks"].items()) {
      if (task["state"].str_or("") != "running")
        continue;
      const std::string node(task["node"].str_or(""));
      auto document = client.get("/v1/nodes/" + net::percent_encode(node));
      if (!document)
        continue;
      const Json& gpus =
          document->find("gpus") ? (*document)["gpus"] : document->at("node", "gpus");
      std::int64_t cards = 0;
      for (const Json& index : task["gpus"].items()) {
        ++cards;
        for (const Json& gpu : gpus.items())
          if (gpu["index"].int_or(-1) == index.int_or(-2))
            take_card(gpu, out);
      }
      if (cards > 0) {
        out.run.gpus = static_cast<int>(cards);
        out.run.share = std::min(1.0, static_cast<double>(task["gpu_milli"].int_or(1000)) / 1000.0 /
                                          static_cast<double>(cards));
      }
    }
  }
  void finish(advise::RunMeasured& run) const {
    run.samples = static_cast<int>(std::max(util_.size(), memory_samples_));
    if (!util_.empty())
      run.util_p95_pct = quantile(util_, 0.95);
    if (!sm_.empty())
      run.sm_p95_pct = quantile(sm_, 0.95);
    if (!dram_.empty())
      run.dram_p95_pct = quantile(dram_, 0.95);
    if (!power_.empty()) {
      double sum = 0;
      for (double p : power_)
        sum += p;
      run.power_mean_w = sum / static_cast<double>(power_.size());
    }
  }

 private:
  void take_card(const Json& gpu, Observed& out) {
    out.run.gpu = std::string(gpu["type"].str_or("?"));
    out.gpu_types.insert(out.run.gpu);
    out.run.shared = out.run.shared || gpu["jobs"].size() > 1;
    if (gpu["mem_used_mib"].is_number()) {
      ++memory_samples_;
      out.run.mem_peak_mib = std::max(out.run.mem_peak_mib, gpu["mem_used_mib"].double_or(0));
    }
    const auto add = [&](const char* name, std::vector<double>& into, double scale) {
      if (gpu[name].is_number() && gpu[name].double_or(-1) >= 0)
        into.push_back(gpu[name].double_or(0) * scale);
    };
    add("util_pct", util_, 1);
    add("sm_active_pct", sm_, 1);
    add("sm_active_permille", sm_, 0.1);
    add("dram_active_pct", dram_, 1);
    if (!gpu["dram_active_pct"].is_number())
      add("mem_util_pct", dram_, 1);  // the time memory was busy: never less than its activity
    add("power_w", power_, 1);
  }
  std::vector<double> util_, sm_, dram_, power_;
  std::size_t memory_samples_ = 0;
};

// How long a finished job ran by its own figures: leases are billed to the nanosecond, times are
// shown to the second.
double seconds_of_job(const Json& job, double seen_s) {
  const WallTime from = utc_or_zero(job["started_at"].str_or("")),
                 to = utc_or_zero(job["ended_at"].str_or(""));
  if (!from || !to)
    return seen_s;
  const double told = static_cast<double>(to.ns - from.ns) / 1e9 -
                      static_cast<double>(job["suspended_s"].int_or(0));
  return std::abs(told - seen_s) <= 1.5 && seen_s > 0 ? seen_s : told;
}

}  // namespace

void StepClock::line(std::string_view text, SteadyTime at) {
  if (pattern_.empty() || at_.size() >= steps_max)
    return;
  if (lower(std::string(text)).find(lower(pattern_)) != std::string::npos)
    at_.push_back(at);
}

void StepClock::feed(std::string_view output, SteadyTime at) {
  rest_.append(output);
  std::size_t from = 0;
  for (auto end = rest_.find_first_of("\n\r"); end != std::string::npos;
       end = rest_.find_first_of("\n\r", from)) {
    if (end > from)
      line(std::string_view(rest_).substr(from, end - from), at);
    from = end + 1;
  }
  rest_.erase(0, from);
  if (rest_.size() > output_line_bytes_max)
    rest_.clear();
}

std::optional<double> StepClock::step_s() const {
  std::vector<double> gaps;
  const std::size_t skip = at_.size() > 8 ? 3 : 1;
  for (std::size_t i = skip; i < at_.size(); ++i)
    gaps.push_back(seconds_between(at_[i - 1], at_[i]));
  if (gaps.size() < 2)
    return std::nullopt;
  // Lines that arrive in one piece have no time between them; then the mean over all lines is
  // better.
  const double middle = quantile(gaps, 0.5);
  if (middle > 0.002)
    return middle;
  const double mean = seconds_between(at_[skip - 1], at_.back()) / static_cast<double>(gaps.size());
  return mean > 0 ? std::optional(mean) : std::nullopt;
}

namespace {

constexpr int refusals_max = 60;                  // of a head that does not answer
constexpr Duration output_patience = seconds(5);  // for the rest of the output after the end

// One job under observation: its output is counted and shown, its GPUs are read now and then.
class Observation {
 public:
  Observation(Client& client, const ObserveOptions& options, SignalQueue signals)
      : client_(client),
        o_(options),
        signals_(std::move(signals)),
        steps_(options.step_pattern),
        next_reading_(steady()) {
    if (auto opened =
            client.websocket(with_query(path_of_job(o_.job, "attach"), {{"offset", "0"}})))
      socket_.emplace(std::move(*opened));
    output_over_ = !socket_;
  }

  Result<Observed> run() {
    for (;;) {
      pollfd fds[2] = {{socket_ && !output_over_ ? socket_->fd() : -1, POLLIN, 0},
                       {signals_.fd(), POLLIN, 0}};
      (void)::poll(fds, 2, 100);
      take_signals();
      if (out_.interrupted && !o_.stop_on_interrupt)
        break;
      take_output();
      if (steady() < next_reading_ && !(output_over_ && socket_))
        continue;
      next_reading_ = steady() + (ended_at_ ? milliseconds(50) : reading_every);
      if (BILLOW_TRY(read_job()) && is_over())
        break;
    }
    return result();
  }

 private:
  void take_signals() {
    while (const int number = signals_.next()) {
      if (number == SIGWINCH)
        continue;
      out_.interrupted = true;
      if (!o_.stop_on_interrupt || std::exchange(stop_sent_, true))
        continue;
      (void)client_.post(path_of_job(o_.job, "stop"),
                         R"({"reason":"stopped from the terminal","force":false})");
    }
  }

  void take_output() {
    using Kind = net::BlockingWebSocket::Message::Kind;
    while (socket_ && !output_over_) {
      auto message = socket_->read();
      if (message && !*message)
        return;
      if (!message || (*message)->kind == Kind::closed) {
        output_over_ = true;
        return;
      }
      if ((*message)->kind == Kind::text) {
        if (auto json = parse_json((*message)->data); json && (*json)["type"].str_or("") == "end")
          output_over_ = true;
        continue;
      }
      const auto piece = parse_output((*message)->data);
      if (!piece)
        continue;
      steps_.feed(piece->bytes, steady());
      if (o_.show_output)
        (void)write_all(piece->error_stream ? STDERR_FILENO : STDOUT_FILENO, piece->bytes);
    }
  }

  // Asks for the job and reads its GPUs while it runs. False where the head did not answer.
  Result<bool> read_job() {
    auto job = client_.get(path_of_job(o_.job));
    if (!job) {
      if (!is_away(job.error()) || ++refused_ > refusals_max)
        return pass(job.error());
      (void)client_.find_again();
      return false;
    }
    out_.job = std::move(*job);
    const std::string state(out_.job["state"].str_or(""));
    if (state != last_state_ && o_.on_change)
      o_.on_change(out_.job);
    last_state_ = state;
    if (state == "running") {
      if (!running_since_)
        running_since_ = steady();
      readings_.take(client_, out_.job, out_);
    }
    return true;
  }

  bool is_over() {
    if (out_.job["final"].bool_or(false)) {
      if (!ended_at_)
        ended_at_ = steady();
      // The rest of the output follows the end; it is waited for, but not long.
      return output_over_ || steady() - *ended_at_ > output_patience;
    }
    if (output_over_ && socket_)
      socket_.reset();  // the connection broke; readings continue without the output
    return o_.at_most.ns > 0 && running_since_ && steady() - *running_since_ > o_.at_most;
  }

  Observed result() {
    const double seen =
        running_since_ ? seconds_between(*running_since_, ended_at_.value_or(steady())) : 0;
    out_.seconds = out_.job["final"].bool_or(false) ? seconds_of_job(out_.job, seen) : seen;
    readings_.finish(out_.run);
    out_.run.seconds = out_.seconds;
    out_.run.steps = steps_.steps();
    out_.run.step_s = steps_.step_s();
    return std::move(out_);
  }

  Client& client_;
  const ObserveOptions& o_;
  SignalQueue signals_;
  Observed out_;
  Readings readings_;
  StepClock steps_;
  std::optional<net::BlockingWebSocket> socket_;
  std::optional<SteadyTime> running_since_, ended_at_;
  SteadyTime next_reading_;
  std::string last_state_;
  bool output_over_ = false, stop_sent_ = false;
  int refused_ = 0;
};

}  // namespace

Result<Observed> observe(Client& client, const ObserveOptions& options) {
  return Observation(client, options, BILLOW_TRY(SignalQueue::create())).run();
}

Result<std::vector<advise::FleetGpu>> fleet_of_head(Client& client, const Catalogue& catalogue) {
  auto nodes = client.get("/v1/nodes");
  if (!nodes)
    return pass(nodes.error());
  std::vector<advise::FleetNode> fleet;
  for (const Json& node : (*nodes)["nodes"].items()) {
    advise::FleetNode cards;
    for (const Json& gpu : node["gpus"].items()) {
      advise::FleetCard card{std::string(gpu["type"].str_or("?")), {}};
      for (const Json& profile : gpu["mig"].items())
        card.mig.emplace_back(profile.str_or(""));
      cards.push_back(std::move(card));
    }
    fleet.push_back(std::move(cards));
  }
  return advise::fleet_of(fleet, catalogue);
}

}  // namespace billow::client
