#include "agent/isolate/fetch_place.h"

#include <poll.h>

#include <utility>

#include "base/log.h"

namespace billow::agent {
namespace {

constexpr int removal_tries = 20;  // a killed process may need a moment
constexpr int removal_pause_ms = 5;

}  // namespace

Result<FetchPlace> FetchPlace::create(const Cgroups& cgroups,
                                      TaskId task,
                                      const NetworkGuard* guard) {
  FetchPlace place(cgroups, BILLOW_TRY(cgroups.create_for_fetch(task)));
  if (guard && !place.group_.v2.empty())
    BILLOW_TRY_VOID(guard->attach(place.group_.v2));
  return place;
}

FetchPlace::FetchPlace(FetchPlace&& other) noexcept
    : cgroups_(std::exchange(other.cgroups_, nullptr)), group_(std::move(other.group_)) {}

FetchPlace::~FetchPlace() {
  if (!cgroups_)
    return;
  Status removed;
  for (int i = 0; i < removal_tries; ++i) {
    removed = cgroups_->remove(group_);
    if (removed)
      return;
    ::poll(nullptr, 0, removal_pause_ms);
  }
  log_warn("{}", removed.error().message);
}

std::vector<std::string> FetchPlace::groups() const {
  std::vector<std::string> out = group_.v1;
  if (!group_.v2.empty())
    out.push_back(group_.v2);
  return out;
}

}  // namespace billow::agent
