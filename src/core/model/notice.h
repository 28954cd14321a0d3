// Notices to one person: where they go and what they are about. A person chooses targets; each has
// its own list of notices that wait to be sent.
//
// The secret part of a target (the address of a Slack webhook, a token) is not here: it is among
// the installation's own secrets, under notice_secret().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/enums.h"
#include "base/ids.h"

namespace billow {

enum class NoticeVia { email, slack, discord, ntfy, webhook, browser };
BILLOW_ENUM_NAMES(NoticeVia,
                  {NoticeVia::email, "email"},
                  {NoticeVia::slack, "slack"},
                  {NoticeVia::discord, "discord"},
                  {NoticeVia::ntfy, "ntfy"},
                  {NoticeVia::webhook, "webhook"},
                  {NoticeVia::browser, "browser"});

enum class NoticeOn { ends, fails, waits, idle, budget };
BILLOW_ENUM_NAMES(NoticeOn,
                  {NoticeOn::ends, "ends"},
                  {NoticeOn::fails, "fails"},
                  {NoticeOn::waits, "waits"},
                  {NoticeOn::idle, "idle"},
                  {NoticeOn::budget, "budget"});

struct NoticeTarget {
  std::uint64_t id = 0;
  UserId user;
  NoticeVia via = NoticeVia::webhook;
  std::string to;                // as lists show it: a mail address, a host; never a secret
  std::vector<NoticeOn> on;      // each at most once
  Duration wait = hours(1);      // of `waits`: a job that has been queued for longer
  std::int32_t budget_pct = 80;  // of `budget`: 50, 80 or 100
  bool confirmed = true;         // false: a mail address whose owner has not confirmed it yet
  WallTime tried_at;             // when a notice was last sent, or given up
  std::string trouble;           // why that one was given up; empty: it was delivered
  bool wants(NoticeOn what) const {
    for (const NoticeOn each : on)
      if (each == what)
        return true;
    return false;
  }
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("id", s.id);
    v("user", s.user);
    v("via", s.via);
    v("to", s.to);
    v("on", s.on);
    v("wait_ns", s.wait);
    v("budget_pct", s.budget_pct);
    v("confirmed", s.confirmed);
    v("tried_at_ns", s.tried_at);
    v("trouble", s.trouble);
  }
};

// One notice that waits to be sent to a target.
struct PersonalNotice {
  std::uint64_t target = 0;
  NoticeOn on = NoticeOn::ends;
  std::string title;  // one line
  std::string text;   // a sentence or two; may be empty
  JobId job;          // 0: it is about no job
  Seq seq = 0;        // of the event that queued it; set when that is applied
  WallTime at;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("target", s.target);
    v("on", s.on);
    v("title", s.title);
    v("text", s.text);
    v("job", s.job);
    v("seq", s.seq);
    v("at_ns", s.at);
  }
};

// All of it, as part of the state.
struct NoticeBook {
  std::uint64_t next_target = 1;
  std::map<std::uint64_t, NoticeTarget> targets;
  std::map<std::uint64_t, std::deque<PersonalNotice>> waiting;  // by target, oldest first
  std::map<std::uint64_t, std::set<JobId>> told;  // queued jobs whose waiting was told, by target
};
// The same as plain tables, for the image of the state.
struct ToldJob {
  std::uint64_t target = 0;
  JobId job;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("target", s.target);
    v("job", s.job);
  }
};
struct NoticeImage {
  std::uint64_t next_target = 1;
  std::vector<NoticeTarget> targets;
  std::vector<PersonalNotice> waiting;
  std::vector<ToldJob> told;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("next_target", s.next_target);
    v("targets", s.targets);
    v("waiting", s.waiting);
    v("told", s.told);
  }
};

// The name under which the secret part of a target is stored.
inline std::string notice_secret(std::uint64_t target) {
  return "notify." + std::to_string(target);
}

// ---- events
// A target was added or changed.
struct NoticeTargetSet {
  static constexpr const char* kind = "notice_target_set";
  NoticeTarget target;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("target", s.target);
  }
};
// Its waiting notices go with it.
struct NoticeTargetRemoved {
  static constexpr const char* kind = "notice_target_removed";
  std::uint64_t target = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("target", s.target);
  }
};
struct NoticeQueued {
  static constexpr const char* kind = "notice_queued";
  PersonalNotice notice;
  std::vector<JobId> waiting;  // of `waits`: the jobs that it is about
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("notice", s.notice);
    v("waiting", s.waiting);
  }
};
// Every notice up to this position was sent, or given up.
struct NoticesSent {
  static constexpr const char* kind = "notices_sent";
  std::uint64_t target = 0;
  Seq through = 0;
  std::string trouble;  // why they were given up; empty: they were delivered
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("target", s.target);
    v("through", s.through);
    v("trouble", s.trouble);
  }
};

// ---- commands
// The secret part, if any, is already sealed under notice_secret(target.id).
struct AddNoticeTarget {
  NoticeTarget target;  // its id must be the next one
  std::string sealed;
};
struct ChangeNoticeTarget {
  UserId by;
  std::uint64_t target = 0;
  std::vector<NoticeOn> on;
  Duration wait;
  std::int32_t budget_pct = 80;
};
struct ConfirmNoticeTarget {
  UserId by;
  std::uint64_t target = 0;
};
struct RemoveNoticeTarget {
  UserId by;
  std::uint64_t target = 0;
};
// Looks for jobs that have waited for longer than somebody wanted.
struct NoticeTick {};
struct RecordNoticesSent {
  NoticesSent sent;
};

namespace limits {
inline constexpr std::size_t notice_targets_per_user_max = 16;
inline constexpr std::size_t notice_targets_max = 10'000;
// Of one target: beyond it the oldest are dropped.
inline constexpr std::size_t notices_waiting_max = 500;
inline constexpr Duration notice_tick = seconds(20);
}  // namespace limits

}  // namespace billow
