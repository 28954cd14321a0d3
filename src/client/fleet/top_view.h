// What `billow top` shows, as text: a pure function of what the live stream said, the keys pressed
// and the size of the terminal. Lines are cut to the width in characters; colours are escape
// sequences that take no width.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/json.h"

namespace billow::client {

class TopView {
 public:
  // A piece of /v1/live.
  void take(const Json& piece);
  void reset();  // a new stream begins with everything
  void set_away(bool away) { away_ = away; }

  // A key as the terminal sent it; true: leave.
  bool key(std::string_view bytes);

  struct Size {
    int rows = 24, cols = 80;
  };
  std::string frame(Size size, WallTime now, bool colours) const;

 private:
  void take_job(const Json& job);
  void take_node(const Json& node);
  void take_gpu(const Json& reading);
  void take_summary(const Json& summary);
  struct Gpu {
    std::string type, trouble, fault;
    std::int64_t mem_mib = 0, milli = 0, util = -1, mem = -1, watts = -1, celsius = -1;
    std::vector<std::uint64_t> jobs;
  };
  struct Node {
    std::string name, state;
    std::vector<Gpu> gpus;
    std::int64_t cpu_milli = 0, cpu_used = -1;
  };
  struct Job {
    std::uint64_t id = 0;
    std::string label, name, user, project, state, reason;
    std::int64_t gpu_milli = 0, submitted = 0, started = 0, since = 0, ran = -1, suspended = 0,
                 cost_nano = 0, rate_nano = 0, at = 0;
    std::vector<std::pair<std::uint64_t, std::vector<std::int64_t>>> where;
  };
  enum class Sort { number, time, gpus, cost, rate };
  enum class Show { all, running, waiting, idle };

  std::vector<std::string> gpu_lines(int rows, int cols, bool colours) const;
  std::vector<std::string> job_lines(int rows, int cols, std::int64_t now_ms, bool colours) const;
  std::vector<const Job*> chosen(std::int64_t now_ms) const;
  bool idle(const Job& job) const;
  std::int64_t cost(const Job& job, std::int64_t now_ms) const;
  static std::int64_t spent_ms(
      const Job& job,
      std::int64_t now_ms);  // running, suspended or waiting: whichever its state is about
  std::string who(const Gpu& gpu) const;

  std::map<std::uint64_t, Node> nodes_;
  std::map<std::uint64_t, Job> jobs_;
  std::int64_t gpus_ = 0, free_milli_ = 0, running_ = 0, queued_ = 0, held_ = 0, suspended_ = 0,
               spend_ = 0, idle_ = 0;
  std::set<std::uint64_t> idle_jobs_;  // by the head's definition
  bool away_ = false, help_ = false, typing_ = false, reverse_ = false, by_node_ = false;
  Sort sort_ = Sort::number;
  Show show_ = Show::all;
  std::string filter_;
  int scroll_ = 0, gpu_scroll_ = 0;
};

}  // namespace billow::client
