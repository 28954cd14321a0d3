// What a gateway that was handed over tells its successor until its last request has ended: which
// replicas are still busy with its requests, and what keys have used since. So the successor
// suspends no replica in the middle of a stream, exceeds no --concurrency, and keeps the limits of
// keys. It is a file in the data directory, written when something has changed, and every few
// seconds in any case; one that is no longer written belongs to a gateway that died, and counts as
// the end.
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "core/wire/codec.h"
#include "gateway/gateway.h"

namespace billow::gateway {
namespace {

constexpr Duration idle_patience = seconds(5);
constexpr std::int64_t stale_after_s = 10;
constexpr Duration alive_every = seconds(4);  // it is written although nothing has changed

struct BusyReplica {
  std::string endpoint;
  std::uint64_t replica = 0;
  std::uint32_t requests = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("replica", s.replica);
    v("requests", s.requests);
  }
};
struct Leaving {
  std::vector<BusyReplica> busy;
  std::vector<KeptKey> keys;  // since the hand-over
  bool over = false;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("busy", s.busy);
    v("keys", s.keys);
    v("over", s.over);
  }
};

}  // namespace

void Gateway::hand_over() {
  const Decision decision(*this);
  each_proxy([](Proxy& proxy) { proxy.hand_over(idle_patience); });
  save_figures();
  keys_.hand_over();
  disk_.wait();  // the successor reads both
  handed_over_ = true;
  tell_successor(false);
}

void Gateway::tell_successor(bool over) {
  if (options_.data_dir.empty())
    return;
  Leaving leaving{.busy = {}, .keys = keys_.since_hand_over(), .over = over};
  for (const auto& [name, endpoint] : endpoints_)
    for (const auto& [key, r] : endpoint->router.replicas())
      if (r.in_flight > 0 && !over)
        leaving.busy.push_back({name, key, r.in_flight});
  std::string text = wire::to_json_text(leaving);
  const SteadyTime now = loop_.steady();
  if (text == kept_leaving_ && now - leaving_kept_at_ < alive_every)
    return;
  disk_.replace(options_.data_dir + "/leaving.json", text);
  kept_leaving_ = std::move(text);
  leaving_kept_at_ = now;
}

void Gateway::hear_predecessor() {
  const std::string path = options_.data_dir + "/leaving.json";
  struct stat info {};
  if (options_.data_dir.empty() || ::stat(path.c_str(), &info) != 0)
    return;
  const auto text = read_file(path);
  auto leaving = text ? wire::from_json_text<Leaving>(*text) : Result<Leaving>(Leaving{});
  if (!leaving)
    log_warn("{}: {}", path, leaving.error().message);
  if (!leaving || system_clock().wall().ns / 1'000'000'000 - info.st_mtime > stale_after_s) {
    if (leaving)
      leaving->busy.clear();
    (void)::unlink(path.c_str());
  }
  if (!leaving)
    leaving = Leaving{};
  keys_.hear_predecessor(leaving->keys);
  predecessor_serves_ = 0;
  for (const BusyReplica& each : leaving->busy)
    predecessor_serves_ += leaving->over ? 0 : each.requests;
  for (const auto& [name, endpoint] : endpoints_) {
    std::map<ReplicaKey, std::uint32_t> busy;
    for (const BusyReplica& each : leaving->busy)
      if (each.endpoint == name)
        busy[each.replica] = each.requests;
    endpoint->router.predecessor_has(busy, loop_.steady());
  }
  if (leaving->over)
    (void)::unlink(path.c_str());
}

}  // namespace billow::gateway
