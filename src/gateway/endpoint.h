// One endpoint as the gateway lives it: the table's row made into a router, an autoscaler,
// connections and health. What it wants done (start, wake, sleep, stop a replica; judge a revision)
// it says through a callback, and the next table shows what came of it.
//
// What holds
// - A replica gets requests only when it is of the serving revision, healthy, awake, and believed:
// its node's agent has said that the task
//   itself listens on its port. When a connection to it has failed, it is believed again after the
//   agent has looked again. (Agents of earlier versions do not look, and while the head is away
//   nobody can be asked: then its last word stands.)
// - A new revision is brought up beside the old one, as many as are awake, and takes over when all
// of them are healthy; if one ends by
//   itself or is not healthy in time, the revision has failed and the old one goes on. A replica of
//   a revision that no longer serves is stopped when its last request has ended.
// - Starts that fail are tried again ever more slowly; while the last one failed and nobody is
// awake or coming, who waits is told why.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "gateway/autoscaler.h"
#include "gateway/proxy.h"
#include "gateway/table.h"

namespace billow::gateway {

// Times in a few dozen buckets that grow by a fifth: small, and right within a tenth.
class Histogram {
 public:
  void add(Duration d);
  Duration quantile(double q) const;
  std::uint64_t count() const { return count_; }
  double sum_s() const { return sum_s_; }

 private:
  std::array<std::uint32_t, 128> buckets_{};
  std::uint64_t count_ = 0;
  double sum_s_ = 0;
};

struct LiveReplica {
  ReplicaRow row;
  std::shared_ptr<Upstream> upstream;
  bool healthy = false;
  bool was_healthy = false;  // once
  bool checking = false;
  bool told_to_stop = false;
  SteadyTime first_seen, check_at, asked_at;
  Duration check_delay = milliseconds(20);
  bool waking = false;     // asked to wake: what it takes is measured
  bool fell = false;       // called back before anything was seen of its falling asleep
  std::uint64_t look = 0;  // number of the last question who has its port
  SteadyTime look_asked;
};

class LiveEndpoint {
 public:
  using Say = std::function<void(FromGateway)>;
  using FreePort = std::function<Result<std::uint16_t>()>;
  LiveEndpoint(std::string name, Say say, FreePort free_port)
      : name_(std::move(name)), say_(std::move(say)), free_port_(std::move(free_port)) {}
  void set_head_is_here(std::function<bool()> fn) { head_is_here_ = std::move(fn); }

  const std::string& name() const { return name_; }
  const EndpointRow& row() const { return row_; }
  const EndpointPolicy& policy() const { return row_.policy; }
  bool key_fits(std::string_view key) const;

  void update(EndpointRow row, SteadyTime now);
  // Decides and says what should be done. Cheap; called on every change and on a timer.
  void steer(SteadyTime now);
  // Replicas whose health should be asked for now; the caller reports with `checked`.
  std::vector<ReplicaKey> due_checks(SteadyTime now);
  void checked(ReplicaKey key, bool healthy, SteadyTime now);
  // The proxy could not connect to it, or lost it: it gets nothing until its agent has looked who
  // has its port, and it is healthy again.
  void unreachable(ReplicaKey key, SteadyTime now);
  // Others wait for room and this endpoint has an idle replica it can spare: it sleeps now. True:
  // one does.
  bool yield_one(SteadyTime now);
  bool awake(ReplicaKey but = 0) const;  // a replica of ours, other than that one, serves or could
  bool waits_for_room() const;  // a replica of ours has been asked for and has no place yet
  SteadyTime waits_since() const;

  // Why nobody can be served now: a start failed and nothing is awake or coming. Empty: somebody
  // is, or will be tried.
  std::string hopeless(SteadyTime now) const;
  int retry_after_s(SteadyTime now) const;
  std::shared_ptr<Upstream> upstream(ReplicaKey key);
  EndpointFigures figures() const;
  EndpointFigures counts() const;  // of its replicas alone: cheap enough to be asked often
  // Replicas that have ended, or are somewhere else now, since the last call: whoever still waits
  // for their answer waits in vain.
  std::vector<std::shared_ptr<Upstream>> take_ended() { return std::exchange(ended_, {}); }

  Router router;
  Autoscaler scaler{ScalePolicy{}};
  EndpointFigures totals;  // the counters of it
  Histogram first_byte, held_time, wake_time, start_time;
  void close();

 private:
  bool alive_or_coming() const;
  void take_row(const ReplicaRow& row, SteadyTime now);
  void leave(LiveReplica& live);
  bool start(std::uint32_t revision, bool spot, SteadyTime now);
  bool believed(const LiveReplica& live) const;
  void ask_who_has_port(LiveReplica& live, SteadyTime now);
  void out_of_service(LiveReplica& live, SteadyTime now);
  void move(ReplicaKey key, const char* what, const char* reason, SteadyTime now);
  void roll(SteadyTime now);
  void retire(SteadyTime now);
  void failed_start(const std::string& reason, SteadyTime now);
  void replica_failed(SteadyTime now);
  void ready(LiveReplica& replica, SteadyTime now);

  std::string name_;
  Say say_;
  FreePort free_port_;
  std::function<bool()> head_is_here_;  // missing: it is
  EndpointRow row_;
  bool known_ = false;
  std::map<ReplicaKey, LiveReplica> replicas_;
  std::vector<std::shared_ptr<Upstream>> ended_;
  std::vector<std::pair<ReplicaKey, std::uint32_t>>
      asked_;  // starts not seen in a table yet: placeholder and revision
  ReplicaKey next_placeholder_ = std::uint64_t{1} << 63;
  std::uint32_t failures_ = 0;  // starts that failed one after the other
  std::string failure_;
  std::uint32_t ports_lost_ = 0;  // replicas one after the other whose port somebody else had
  SteadyTime start_again_at_;
  SteadyTime crashed_at_;  // the last replica that ended after it had been healthy
  std::uint32_t judged_ =
      0;  // the revision last judged, and when: said again to a head that did not hear it
  SteadyTime judged_at_;
  std::uint32_t rolled_ = 0;  // the one being brought up, and what had failed before it
  std::uint64_t failed_before_ = 0;
  std::string rolling_failure_;  // of one of its own replicas
  std::uint64_t rolling_failed_job_ = 0;
};

}  // namespace billow::gateway
