#include "advise/load/queueing.h"

#include <algorithm>
#include <cmath>
#include <deque>

#include "advise/load/draws.h"
#include "base/check.h"

namespace billow::advise {
namespace {

constexpr std::size_t steps_max = 4'000'000;

// A whole number of tokens ≥ 1 with this mean.
double drawn_length(Draws& draws, double mean, double variation) {
  if (!(variation > 0))
    return std::max(1.0, std::round(mean));
  const double variance = std::log(1 + variation * variation);
  const double drawn = mean * std::exp(std::sqrt(variance) * draws.normal() - variance / 2);
  return std::clamp(std::round(drawn), 1.0, 30 * mean);
}

struct Sequence {
  double arrived_ms = 0, first_ms = 0;
  double prompt = 0, output = 0;  // tokens still to do
  double tokens = 0;              // of the whole answer
};

struct Times {
  double ttft_ms, tpot_ms;
  bool several;  // tokens, so that there is a time between them
};

class Replay {
 public:
  Replay(const EngineTimes& engine, const QueueLoad& load)
      : engine_(engine), load_(load), draws_{load.seed} {
    if (load.rps > 0)
      next_ms_ = gap();
    else
      for (double u = 0; u < std::max(1.0, load.users); ++u)
        arrive(0);
  }

  Tails run() {
    for (std::size_t step = 0; step < steps_max && done_.size() < wanted(); ++step) {
      take_arrivals();
      if (waiting_.empty() && running_.empty())
        now_ms_ = next_ms_;
      else if (engine_.prefill_first && can_admit())
        prefill_some();
      else
        one_step();
    }
    return summary();
  }

 private:
  std::size_t wanted() const { return static_cast<std::size_t>(load_.requests); }
  double gap() { return -std::log(draws_.unit()) / load_.rps * 1e3; }
  bool can_admit() const {
    return !waiting_.empty() && running_.size() < static_cast<std::size_t>(engine_.sequences_max);
  }

  void arrive(double at_ms) {
    Sequence s{.arrived_ms = at_ms};
    if (!load_.lengths.empty()) {
      const auto& drawn = load_.lengths[static_cast<std::size_t>(
          draws_.unit() * static_cast<double>(load_.lengths.size()))];
      s.prompt = std::max(1, drawn.input);
      s.output = std::max(1, drawn.output);
    } else {
      s.prompt = drawn_length(draws_, load_.input, load_.variation.input);
      s.output = drawn_length(draws_, load_.output, load_.variation.output);
    }
    s.tokens = s.output;
    waiting_.push_back(s);
    ++arrived_;
  }

  void take_arrivals() {
    while (load_.rps > 0 && next_ms_ <= now_ms_) {
      arrive(next_ms_);
      next_ms_ += gap();
    }
  }

  void spend(double ms) {
    in_flight_ms_ += ms * static_cast<double>(waiting_.size() + running_.size());
    now_ms_ += ms;
  }

  // All waiting prompts that fit into one prefill; those that decode stand still meanwhile.
  void prefill_some() {
    double tokens = 0, ms = 0;
    const std::size_t before = running_.size();
    while (can_admit() &&
           (tokens == 0 || tokens + waiting_.front().prompt <= engine_.chunk_tokens)) {
      tokens += waiting_.front().prompt;
      ms = engine_.prefill_ms + tokens * engine_.prefill_token_ms;
      waiting_.front().prompt = 0;
      running_.push_back(waiting_.front());
      waiting_.pop_front();
    }
    spend(ms);
    for (std::size_t i = before; i < running_.size(); ++i)
      token(running_[i]);
    drop_finished();
  }

  // One step of those that decode, with a piece of the prompts that wait.
  void one_step() {
    double budget = engine_.prefill_first ? 0 : engine_.chunk_tokens, ms = 0, begun_ms = 0;
    while (budget > 0) {
      auto open = std::find_if(running_.begin(), running_.end(),
                               [](const Sequence& s) { return s.prompt > 0; });
      if (open == running_.end()) {
        if (!can_admit())
          break;
        running_.push_back(waiting_.front());
        waiting_.pop_front();
        open = running_.end() - 1;
        begun_ms = engine_.prefill_ms;
      }
      const double piece = std::min(budget, open->prompt);
      budget -= piece;
      ms += piece * engine_.prefill_token_ms;
      open->prompt -= piece;
    }
    // A prompt that is complete gives its first token with this step, without a decode of its own.
    std::size_t decoding = 0;
    for (auto& s : running_)
      decoding += !(s.prompt > 0) && s.first_ms > 0;
    // Both read the weights and launch the layers, once.
    ms += std::max(begun_ms, decoding > 0 ? engine_.step_ms(decoding) : 0);
    spend(ms);
    for (auto& s : running_)
      if (!(s.prompt > 0))
        token(s);
    drop_finished();
  }

  void token(Sequence& s) {
    if (!(s.first_ms > 0))
      s.first_ms = now_ms_;
    --s.output;
  }

  void drop_finished() {
    std::size_t kept = 0, gone = 0;
    for (auto& s : running_) {
      if (s.prompt > 0 || s.output > 0) {
        running_[kept++] = s;
        continue;
      }
      ++gone;
      done_.push_back({s.first_ms - s.arrived_ms,
                       s.tokens > 1 ? (now_ms_ - s.first_ms) / (s.tokens - 1) : 0, s.tokens > 1});
    }
    running_.resize(kept);
    if (!(load_.rps > 0))
      for (std::size_t i = 0; i < gone; ++i)
        arrive(now_ms_);
  }

  Tails summary() const {
    // The first requests meet an empty engine, or all come at once.
    const auto users = static_cast<std::size_t>(load_.rps > 0 ? 0 : load_.users);
    const std::size_t warm = std::max(done_.size() / 5, std::min(done_.size() / 2, users));
    std::vector<double> ttft, tpot;
    for (std::size_t i = warm; i < done_.size(); ++i) {
      ttft.push_back(done_[i].ttft_ms);
      if (done_[i].several)
        tpot.push_back(done_[i].tpot_ms);
    }
    Tails t{percentiles(std::move(ttft)), percentiles(std::move(tpot))};
    t.concurrency = now_ms_ > 0 ? in_flight_ms_ / now_ms_ : 0;
    t.keeps_up = !(load_.rps > 0) || waiting_.size() < std::max<std::size_t>(16, arrived_ / 10);
    return t;
  }

  const EngineTimes& engine_;
  const QueueLoad& load_;
  Draws draws_;
  double now_ms_ = 0, next_ms_ = 0, in_flight_ms_ = 0;
  std::size_t arrived_ = 0;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;
  std::vector<Times> done_;
};

}  // namespace

double EngineTimes::step_ms(std::size_t sequences) const {
  BILLOW_CHECK(!decode_ms.empty(), "an engine has step times");
  return decode_ms[std::clamp<std::size_t>(sequences, 1, decode_ms.size()) - 1];
}

EngineTimes engine_times(const Calibration& calibration, ServingRow row, double sequences_max) {
  EngineTimes t;
  t.prefill_first = row.engine == "sglang";
  t.sequences_max = static_cast<int>(std::clamp(sequences_max, 1.0, 1024.0));
  const auto prepared = calibration.prepare(row);
  // Steps at powers of two; between them a straight line.
  double below = 1, below_ms = 0;
  for (double b = 1; t.decode_ms.size() < static_cast<std::size_t>(t.sequences_max); b *= 2) {
    row.concurrency = b;
    const double ms = Calibration::decode_ms(prepared, row);
    if (b == 1)
      t.decode_ms.push_back(ms);
    for (double i = below + 1; b > 1 && i <= b; ++i)
      t.decode_ms.push_back(below_ms + (ms - below_ms) * (i - below) / (b - below));
    below = b;
    below_ms = ms;
  }
  row.concurrency = 1;
  const double input = row.input, whole = Calibration::quick(prepared, row).ttft_ms;
  row.input = std::max(1.0, input / 4);
  const double part = Calibration::quick(prepared, row).ttft_ms;
  t.prefill_token_ms = input > row.input ? std::max(0.0, (whole - part) / (input - row.input)) : 0;
  t.prefill_ms = std::max(0.0, whole - input * t.prefill_token_ms);
  return t;
}

Tails simulate_queue(const EngineTimes& engine, const QueueLoad& load) {
  return Replay(engine, load).run();
}

}  // namespace billow::advise
