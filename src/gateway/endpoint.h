// One live endpoint: its row of the head's table, a router, an autoscaler, connections and health.
// It orders what it wants (start, wake, suspend or stop a replica; judge a revision) through a
// callback; the next table shows the result.
//
// Guarantees
// - A replica gets requests only if it has the serving revision, is healthy and awake, and is
//   believed: its agent has confirmed that the task itself listens on its port. After a failed
//   connection the agent must confirm that again. (Agents of earlier versions do not; and while the
//   head is away, nobody can be asked: then the last answer counts.)
// - A new revision is started beside the old one, with as many replicas as are awake. It takes over
//   when all of them are healthy. If one ends by itself or is not healthy in time, the revision has
//   failed and the old one continues. If there is no room for both, the old one is stopped first
//   (steer/rollout.cpp). A replica of a revision that no longer serves is stopped when its last
//   request has ended, or its time to drain.
// - A replica that is sick (steer/health.cpp) gets no requests while others can serve, and is
//   replaced if it stays sick.
// - A canary gets as many replicas as its part of the requests needs. It ends if one of them ends
//   by itself, or if its figures are worse than those of the serving revision (release_watch.h).
//   The serving revision keeps enough replicas for all requests, so that nobody waits when it ends.
// - Failed starts are retried at growing intervals. While the last start has failed and no replica
//   is awake or starting, callers get the reason.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>

#include "core/model/timed_min.h"
#include "gateway/proxy.h"
#include "gateway/pure/autoscaler.h"
#include "gateway/pure/daily_pattern.h"
#include "gateway/pure/release_watch.h"
#include "gateway/table.h"

namespace billow::gateway {

struct LiveReplica {
  ReplicaRow row;
  std::shared_ptr<Upstream> upstream;
  bool healthy = false;
  bool was_healthy = false;  // at least once
  bool adopted = false;      // it ran when this gateway first saw it
  bool started = false;      // its start-up probe has succeeded, or there is none
  bool checking = false;
  bool told_to_stop = false;
  SteadyTime first_seen, check_at, asked_at;
  SteadyTime running_since;
  Duration check_delay = milliseconds(20);
  std::uint32_t failed_checks = 0, timeouts = 0, errors = 0;  // in a row
  SteadyTime sick_since;        // its checks have failed since then; 0: it is well
  SteadyTime out_until;         // it gets no requests before then, healthy or not
  std::uint32_t times_out = 0;  // how often it was left out
  bool said_sick = false;       // in the log
  std::string sick_why;         // "fails its health check"; empty: it is well
  bool waking = false;          // asked to wake; its time is measured
  bool fell = false;            // called back before it was seen falling asleep
  bool live_checking = false;   // its liveness is being asked for
  SteadyTime live_check_at;
  std::uint32_t live_failed = 0;  // in a row
  std::uint64_t look = 0;         // number of the last question about its port
  SteadyTime look_asked;
  std::string token;  // names it in a cookie
};

enum class Check { good, bad, no_answer };
enum class Probe { ready, live };
enum class Answered { well, error, timed_out };

class LiveEndpoint {
 public:
  using Say = std::function<void(FromGateway)>;
  using FreePort = std::function<Result<std::uint16_t>()>;
  LiveEndpoint(std::string name, Say say, FreePort free_port)
      : name_(std::move(name)), say_(std::move(say)), free_port_(std::move(free_port)) {}
  void set_head_is_here(std::function<bool()> fn) { head_is_here_ = std::move(fn); }
  void set_wall_clock(std::function<WallTime()> fn) { wall_ = std::move(fn); }

  const std::string& name() const { return name_; }
  const EndpointRow& row() const { return row_; }
  const EndpointPolicy& policy() const { return row_.policy; }
  // The row of a key by its value; null: it opens nothing.
  const KeyRow* key_for(std::string_view hash) const;  // of the key that is offered
  const KeyRow* key_named(std::string_view name) const;

  void update(EndpointRow row, SteadyTime now);
  // Decides and orders what should be done. Cheap; called on every change and on a timer.
  void steer(SteadyTime now);
  // Replicas whose health should be asked for now; the caller reports with `checked`.
  std::vector<ReplicaKey> due_checks(SteadyTime now);
  void checked(ReplicaKey key, Check result, SteadyTime now);
  // The same of the question whether a replica works at all.
  std::vector<ReplicaKey> due_live_checks(SteadyTime now);
  void live_checked(ReplicaKey key, Check result, SteadyTime now);
  // What to ask the replica: a path, which may be empty, and how long to wait.
  std::pair<std::string, Duration> question(ReplicaKey key, Probe probe) const;
  // Whether Prometheus should be asked now; the caller reports with `query_answered`.
  bool query_due(SteadyTime now);
  void query_answered(const std::string& query, Result<double> value, SteadyTime now);
  // How a request to the replica ended, as far as that says something about the replica.
  void answered(ReplicaKey key, Answered how, SteadyTime now);
  // The proxy could not connect to the replica, or lost it: it gets no requests until its agent has
  // confirmed its port and it is healthy again.
  void unreachable(ReplicaKey key, SteadyTime now);
  // Whether the next request goes to the canary, or is copied to it. `client` names its sender if
  // requests of one sender belong together.
  bool for_canary(std::string_view client);
  bool to_be_mirrored(std::string_view method);
  // A request or a copy has ended at a replica.
  void served(ReplicaKey key, bool error, Duration latency, SteadyTime now);
  // Suspends an idle replica that this endpoint can spare, because others wait for capacity. False:
  // it has none.
  bool yield_one(SteadyTime now);
  bool awake(ReplicaKey but = 0) const;  // some replica other than that one can serve
  bool waits_for_capacity() const;       // a replica was ordered and is not placed yet
  SteadyTime waits_since() const;

  // Why no request can be served now: a start has failed and no replica is awake or starting. Empty
  // if one is, or will be tried.
  std::string hopeless(SteadyTime now) const;
  int retry_after_s(SteadyTime now) const;
  std::shared_ptr<Upstream> upstream(ReplicaKey key);
  // What names a replica in a cookie, made with the gateway's secret.
  std::string token_of(ReplicaKey key, std::string_view secret);
  ReplicaKey replica_with_token(std::string_view token, std::string_view secret);  // 0: none
  EndpointFigures figures() const;
  EndpointFigures counts() const;          // of its replicas only: cheap
  std::vector<std::string> notes() const;  // what its owner should know now
  // Replicas that have ended or moved since the last call: their answers will never come.
  std::vector<std::shared_ptr<Upstream>> take_ended() { return std::exchange(ended_, {}); }

  Router router;
  Autoscaler scaler{ScalePolicy{}};
  EndpointFigures totals;  // its counters
  Histogram first_byte, held_time, wake_time, start_time;
  billow::Histogram answers;  // first_byte for /metrics, with traces as exemplars
  NativeBuckets native_answers;
  void close();

 private:
  // An order without effect is repeated after this time.
  static constexpr Duration move_patience = seconds(5);
  static constexpr Duration check_delay_min = milliseconds(20);
  // A replica that was called back from sleep and still runs counts as awake after this.
  static constexpr Duration call_back_patience = seconds(1);

  bool alive_or_coming() const;
  void take_row(const ReplicaRow& row, SteadyTime now);
  LiveReplica& add_replica(const ReplicaRow& row, SteadyTime now);
  void connect(LiveReplica& live, const ReplicaRow& row);
  void follow_task(LiveReplica& live, const Replica& r, SteadyTime now);
  void forget_lost_starts(SteadyTime now);
  void forget_lost_orders(SteadyTime now);
  void resume(ReplicaKey key, SteadyTime now);
  void suspend(ReplicaKey key, SteadyTime now);
  void leave(LiveReplica& live);
  bool start(std::uint32_t revision, bool spot, SteadyTime now);
  bool believed(const LiveReplica& live) const;
  void ask_who_has_port(LiveReplica& live, SteadyTime now);
  void out_of_service(LiveReplica& live, SteadyTime now);
  void check_failed(LiveReplica& live, Check result, SteadyTime now);
  // Takes a sick replica out of service if at least `stay_min` others can serve.
  void leave_out(LiveReplica& live, const char* why, std::uint32_t stay_min, SteadyTime now);
  void replace_sick(SteadyTime now);
  bool sick(const LiveReplica& live) const;
  std::uint32_t serving() const;  // replicas that get requests
  std::uint32_t living() const;   // and those that are left out
  void move(ReplicaKey key, const char* what, const char* reason, SteadyTime now);
  const EndpointPolicy& policy_of(const LiveReplica& live) const;
  const EndpointPolicy& rolling_policy() const;
  std::uint32_t awake_min(SteadyTime now);  // whatever the requests are
  std::uint32_t query_min(SteadyTime now) const;
  void stop_sick(LiveReplica& live, const char* reason, SteadyTime now);
  void roll(SteadyTime now);
  bool recreates() const;  // the old revision makes room for the new one
  bool make_room(SteadyTime now);
  void drain(LiveReplica& live, const char* reason, SteadyTime now);
  void judge(
      std::uint32_t revision, bool healthy, std::string reason, std::uint64_t job, SteadyTime now);
  std::uint32_t canary_replicas() const;  // how many its part of the requests needs
  void keep_canary(SteadyTime now);
  void retire(SteadyTime now);
  void failed_start(const std::string& reason, SteadyTime now);
  void replica_failed(SteadyTime now);
  void ready(LiveReplica& replica, SteadyTime now);

  std::string name_;
  Say say_;
  FreePort free_port_;
  std::function<bool()> head_is_here_;  // missing: always true
  EndpointRow row_;
  bool known_ = false;
  std::map<ReplicaKey, LiveReplica> replicas_;
  std::vector<std::shared_ptr<Upstream>> ended_;
  // Starts not yet seen in a table: placeholder and revision.
  std::vector<std::pair<ReplicaKey, std::uint32_t>> asked_;
  ReplicaKey next_placeholder_ = std::uint64_t{1} << 63;
  std::uint32_t failures_ = 0;  // consecutive failed starts
  std::string failure_;
  std::uint32_t ports_lost_ = 0;  // consecutive replicas whose port was taken
  SteadyTime start_again_at_;
  SteadyTime crashed_at_;     // the last replica that ended after it had been healthy
  std::uint32_t judged_ = 0;  // the revision judged last; repeated for a head that missed it
  SteadyTime judged_at_;
  std::uint32_t rejected_ = 0;  // the revision judged as bad last
  std::uint32_t rolled_ = 0;    // the one being started, and the failure known before it
  std::uint64_t failed_before_ = 0;
  std::string rolling_failure_;  // of one of its replicas
  std::uint64_t rolling_failed_job_ = 0;
  std::unique_ptr<ReleaseWatch> watch_;  // while a canary runs
  std::uint32_t recreating_ = 0;         // the revision that does not fit beside the serving one
  std::string recreate_why_;
  std::uint32_t roll_want_ = 0;  // replicas of the revision being started
  std::function<WallTime()> wall_;
  std::vector<TimedMin> periods_;  // of the policy's `min_at`
  DailyPattern pattern_;
  struct Query {
    bool asking = false;
    SteadyTime asked_at, value_at;  // zero: never
    double value = 0;
    std::string error;  // of the last answer; empty: it was good
  } query_;
};

}  // namespace billow::gateway
