#include "pool/rest/pacing.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "base/sync.h"

namespace billow::pool::rest {
namespace {

struct Turns {
  SteadyTime request, create;  // when the next one is due at an even pace
};

Sync<std::map<std::string, Turns>>& all_turns() {
  static Sync<std::map<std::string, Turns>> turns;
  return turns;
}

Duration gap(double per_s) {
  return {static_cast<std::int64_t>(1e9 / per_s)};
}

}  // namespace

bool Pacer::wait(bool creates, Duration at_most) const {
  SteadyTime at;
  {
    auto turns = all_turns().lock();
    Turns& mine = (*turns)[account_];
    const SteadyTime now = system_clock().steady();
    // A second's worth of requests may go out together; creations are spread evenly.
    const double burst = std::clamp(pace_.requests_per_s, 1.0, 10.0) - 1;
    const Duration early = {static_cast<std::int64_t>(burst * 1e9 / pace_.requests_per_s)};
    at = std::max(now, mine.request - early);
    if (creates && pace_.creates_per_s > 0)
      at = std::max(at, mine.create);
    if (at - now > at_most)
      return false;
    mine.request = std::max(mine.request, at) + gap(pace_.requests_per_s);
    if (creates && pace_.creates_per_s > 0)
      mine.create = at + gap(pace_.creates_per_s);
  }
  const Duration left = at - system_clock().steady();
  if (left.ns > 0)
    std::this_thread::sleep_for(std::chrono::nanoseconds(left.ns));
  return true;
}

void Pacer::pause(Duration pause) const {
  auto turns = all_turns().lock();
  Turns& mine = (*turns)[account_];
  const double burst = std::clamp(pace_.requests_per_s, 1.0, 10.0) - 1;
  const Duration early = {static_cast<std::int64_t>(burst * 1e9 / pace_.requests_per_s)};
  mine.request = std::max(mine.request, system_clock().steady() + pause + early);
}

}  // namespace billow::pool::rest
