// GET /v1/live: everything a dashboard or `billow top` shows, as one stream of server-sent events.
// First everything, then only what changed: jobs whose row differs from the one sent, nodes, and
// the GPUs' readings every two seconds. A stream keeps a hash of what it has sent, so an idle fleet
// costs a walk over its GPUs and one line. A client that reconnects gets everything again.
//
// With ?job=ID,ID, and by POST /v1/live/STREAM/subscriptions, it also follows logs
// (pages/live_logs.h).
//
// Bounded: rows go out in pieces, the next when the last has been taken; beyond
// limits::live_jobs_max jobs the newest are shown and the summary says how many there are.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "api/call.h"
#include "api/pages/live_logs.h"
#include "api/pages/live_readings.h"
#include "base/append_format.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/text.h"
#include "net/http/sse.h"
#include "view/cost.h"
#include "view/fleet_documents.h"
#include "view/idle_jobs.h"
#include "view/live_rows.h"
#include "view/spec_document.h"
#include "view/times.h"

namespace billow::api::streams {
namespace {

constexpr Duration look_every = milliseconds(500);
constexpr int readings_every = 4;  // looks
constexpr std::size_t rows_per_piece = 400;
constexpr std::size_t piece_ahead_bytes = 256 << 10;
constexpr std::size_t ended_max = 100;  // documents of ended jobs in one piece

// What a placed job that has not started waits for, such as its image. There is no event for it.
std::string brought(const Host& host, const Job& job) {
  if (job.state != JobState::running)
    return {};
  for (const TaskId id : job.tasks)
    if (host.state().tasks.at(id).state == TaskState::starting)
      if (std::string text = host.waits_for(id); !text.empty())
        return text;
  return {};
}

std::uint64_t signature(const control::State& state, const Job& job) {
  std::uint64_t hash =
      mix(mix(mix(1, static_cast<std::uint64_t>(job.state)), job.reason), job.attempt);
  hash = mix(mix(hash, static_cast<std::uint64_t>(job.stopping)),
             static_cast<std::uint64_t>(job.spec->priority));
  for (TaskId id : job.tasks) {
    const Task& task = state.tasks.at(id);
    hash = mix(mix(mix(hash, id.value), static_cast<std::uint64_t>(task.state)),
               static_cast<std::uint64_t>(task.started_at.ns));
  }
  return hash;
}

struct Live : std::enable_shared_from_this<Live> {
  CallPtr call;
  std::unique_ptr<net::Subscription> changes;
  net::Timer timer;
  bool dirty = true, done = false, sending = false;
  int looks = 0;
  std::unordered_map<JobId, std::uint64_t> jobs;  // hash of the row as sent
  std::unordered_map<NodeId, std::uint64_t> nodes;
  LiveReadings readings;
  std::string summary;
  std::string name;  // of this stream
  std::optional<LiveLogs> logs;
  struct Held {
    std::uint64_t leases = 0;
    std::optional<view::JobTimes> closed;
  };
  std::unordered_map<JobId, Held> held;  // times of closed leases, of jobs that held more than one

  // The times of a job's closed leases, if they are known. After each change of lease the store is
  // asked once; its answer marks the row for sending again.
  const view::JobTimes* closed_of(const Job& job) {
    static const view::JobTimes none;
    if (!view::held_before(state(), job))
      return &none;
    std::uint64_t leases =
        job.attempt * 1'000'000ull +
        (job.tasks.empty() ? 999'999 : state().tasks.at(job.tasks.front()).lease_number);
    Held& known = held[job.id];
    if (known.leases != leases) {
      known.leases = leases;
      const Status queued = call->host.workers().submit(
          [&queries = call->host.queries(), id = job.id] {
            return queries.leases(
                {.project = {}, .job = id, .from = {}, .before = {}, .after = {}, .limit = 10'000});
          },
          [self = shared_from_this(), id = job.id, leases,
           nodes = job.spec->nodes](Result<std::vector<LeaseRow>> rows) {
            const auto at = self->held.find(id);
            if (self->done || !rows || at == self->held.end() || at->second.leases != leases)
              return;
            at->second.closed = view::times_of(*rows, nodes);
            self->jobs[id] = 0;
            self->dirty = true;
          });
      if (!queued)
        known.leases = 0;  // the workers are busy: ask again when the row changes
    }
    return known.closed ? &*known.closed : nullptr;
  }

  const control::State& state() const { return call->host.state(); }
  bool visible(ProjectId project) const { return call->may(Permission::jobs_read, project); }
  bool sees_all() const {
    return std::all_of(state().projects.begin(), state().projects.end(),
                       [this](const auto& p) { return visible(p.first); });
  }

  void begin() {
    call->exchange->start_stream(
        200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}});
    name = random_token(12);
    call->exchange->write(net::format_sse(
        {.id = "", .event = "stream", .data = fmt::format("{{\"stream\":\"{}\"}}", name)}));
    logs.emplace(call, [weak = weak_from_this()](const std::string& event) {
      const auto self = weak.lock();
      if (!self || self->done)
        return false;
      if (!self->call->exchange->write(event))
        self->call->exchange->abort();
      return !self->done;
    });
    call->live->add(name, {call->principal.token, call->principal.user,
                           [weak = weak_from_this()](const std::vector<LogWish>& wishes) {
                             if (const auto self = weak.lock(); self && !self->done)
                               self->logs->set(wishes);
                           }});
    changes = call->host.watch_events([weak = weak_from_this()](const Event&) {
      if (auto self = weak.lock())
        self->dirty = true;
    });
    timer = call->host.loop().every(look_every, [self = shared_from_this()] { self->look(); });
    call->exchange->on_drain([weak = weak_from_this()] {
      if (auto self = weak.lock()) {
        self->look_on();
        self->logs->drained();
      }
    });
    call->exchange->on_close([self = shared_from_this()] {
      self->done = true;
      self->call->live->remove(self->name);
      self->call->host.loop().post([self] {
        self->logs->close();
        self->changes.reset();
        self->timer.cancel();
      });
    });
    look();
  }
  void look() {
    const bool all = looks++ % readings_every == 0;
    if (done || (!dirty && !all) || call->exchange->buffered() > piece_ahead_bytes)
      return;
    // If the token has expired, the stream ends; a client that reconnects gets the reason.
    if (all && !call->still_allowed())
      return call->exchange->abort();
    send(all);
  }
  void look_on() {
    if (!done && dirty)
      send(false);
  }
  // A shown job may have ended, and the viewer may have left its project.
  bool still_shown(JobId id) const {
    const auto owner = owner_of(state(), id);
    return owner && visible(owner->project);
  }

  // Sends what has changed since the last piece, up to the size of one piece.
  void send(bool with_readings) {
    if (sending)
      return;
    sending = true;
    dirty = false;
    const view::Moment at = call->host.moment();
    std::string out = fmt::format("{{\"now\":{}", at.now.ns / 1'000'000);
    bool news = add_jobs(out, at);
    news = add_nodes(out) || news;
    if (with_readings)
      news = add_readings(out) || news;
    news = add_summary(out) || news;
    out += '}';
    if (!news && looks % (readings_every * 8) != 1) {
      sending = false;
      return;
    }  // otherwise an occasional sign of life
    call->host.when_durable(
        [self = shared_from_this(),
         text = net::format_sse({.id = "", .event = "live", .data = std::move(out)})] {
          self->sending = false;
          if (self->done)
            return;
          if (!self->call->exchange->write(text))
            return self->call->exchange->abort();
          if (self->dirty && self->call->exchange->buffered() < piece_ahead_bytes)
            self->call->host.loop().post([self] { self->look_on(); });
        });
  }

  // Whether a row that has changed still fits into this piece; if not, the next piece begins with
  // it.
  bool fits(std::size_t& rows) {
    if (rows++ < rows_per_piece)
      return true;
    dirty = true;
    return false;
  }

  void put_arrays(std::string& list, std::size_t& rows) {
    for (const auto& [id, array] : state().arrays) {
      if (!visible(array.project))
        continue;
      std::uint64_t& sent = jobs[id];
      const std::uint64_t hash = mix(mix(2, array.left), array.running);
      if (sent == hash)
        continue;
      if (!fits(rows))
        return;
      sent = hash;
      if (!list.empty())
        list += ',';
      view::put_array(list, state(), array);
    }
  }

  // Newest first: if there are more jobs than the limit, people look for the newest.
  void put_jobs(std::string& list, std::size_t& rows, view::Moment at) {
    std::size_t seen = 0;
    for (auto it = state().jobs.rbegin(); it != state().jobs.rend() && seen < limits::live_jobs_max;
         ++it) {
      const Job& job = it->second;
      if (!visible(job.project) || (job.array && job.tasks.empty()))
        continue;
      ++seen;
      const std::string starts = brought(call->host, job);
      const std::uint64_t hash = mix(signature(state(), job), starts);
      std::uint64_t& sent = jobs[job.id];
      if (sent == hash)
        continue;
      if (!fits(rows)) {
        sent = 0;
        return;
      }
      sent = hash;
      if (!list.empty())
        list += ',';
      view::put_job(list, state(), job, starts.empty() ? job.reason : starts, closed_of(job), at);
    }
  }

  // Jobs that were shown and have left, with the documents of those that ended.
  void put_gone(std::string& out, const std::vector<JobId>& gone) {
    out += ",\"gone\":[";
    std::string ended;
    std::size_t documents = 0;
    for (std::size_t i = 0; i < gone.size(); ++i) {
      append_format(out, "{}{}", i ? "," : "", gone[i].value);
      jobs.erase(gone[i]);
      held.erase(gone[i]);
      if (documents >= ended_max)
        continue;
      auto document = call->host.recently_finished(gone[i]);
      const Project* project =
          document ? state().project_by_name((*document)["project"].str_or("")) : nullptr;
      if (!project || !visible(project->id))
        continue;
      view::cover_variables(*document);
      append_format(ended, "{}{}", ended.empty() ? "" : ",", document->dump());
      ++documents;
    }
    out += "]";
    if (!ended.empty())
      append_format(out, ",\"ended\":[{}]", ended);
  }

  bool add_jobs(std::string& out, view::Moment at) {
    std::vector<JobId> gone;
    for (const auto& [id, hash] : jobs)
      if (!still_shown(id))
        gone.push_back(id);
    std::size_t rows = 0;
    std::string list;
    put_arrays(list, rows);
    put_jobs(list, rows, at);
    if (!list.empty())
      append_format(out, ",\"jobs\":[{}]", list);
    if (!gone.empty())
      put_gone(out, gone);
    return !list.empty() || !gone.empty();
  }

  bool add_nodes(std::string& out) {
    std::string list;
    std::vector<NodeId> gone;
    for (const auto& [id, hash] : nodes)
      if (!state().nodes.contains(id))
        gone.push_back(id);
    std::size_t gpus = 0;
    for (const auto& [id, node] : state().nodes) {
      std::uint64_t hash = mix(mix(mix(3, node.reachable), node.drained), node.offer.version);
      for (const NodeGpu& gpu : node.offer.gpus)
        hash = mix(mix(hash, node.gpu_trouble(gpu)), gpu.uuid);
      for (const auto& [key, value] : node.offer.labels)
        hash = mix(mix(hash, key), value);
      if (const auto known = nodes.find(id); known != nodes.end() && known->second == hash)
        continue;
      if (gpus > rows_per_piece) {
        dirty = true;
        break;
      }
      gpus += node.offer.gpus.size() + 1;
      nodes[id] = hash;  // only with its document: readings of an unknown node would be dropped
      if (!list.empty())
        list += ',';
      list += view::node_document(state(), node, nullptr).dump();
    }
    if (!list.empty())
      append_format(out, ",\"nodes\":[{}]", list);
    if (!gone.empty()) {
      out += ",\"nodes_gone\":[";
      for (std::size_t i = 0; i < gone.size(); ++i) {
        append_format(out, "{}{}", i ? "," : "", gone[i].value);
        nodes.erase(gone[i]);
        readings.forget(gone[i]);
      }
      out += ']';
    }
    return !list.empty() || !gone.empty();
  }

  bool add_readings(std::string& out) {
    return readings.add(
        out, call->host, [this](ProjectId project) { return visible(project); },
        [this](NodeId node) { return nodes.contains(node); });
  }

  // Current counts and charge rates. `idle` is the charge rate of jobs that do nothing right now
  // (view/idle_jobs.h). Jobs and money cover the projects the caller may see; nodes and GPUs are
  // shown to everybody.
  bool add_summary(std::string& out) {
    std::int64_t spend = 0, idle = 0;
    const view::FleetCounts fleet = view::fleet_counts(
        state(), [this](NodeId node) { return call->host.readings(node); }, call->host.now());
    for (const auto& [id, task] : state().tasks) {
      if (task.state == TaskState::ended || !visible(state().jobs.at(task.job).project))
        continue;
      spend += view::charge_rate_now(state(), task);
    }
    std::string idle_list;
    std::size_t listed = 0;
    for (const auto& [id, job] :
         view::idle_jobs(state(), [this](NodeId node) { return call->host.readings(node); })) {
      if (!visible(state().jobs.at(id).project))
        continue;
      idle += job.nano_usd_per_s;
      if (++listed <= limits::live_jobs_max)
        append_format(idle_list, "{}{}", idle_list.empty() ? "" : ",", id.value);
    }
    std::map<JobState, std::uint64_t> counts;
    if (sees_all())
      counts.insert(state().count.begin(), state().count.end());
    else
      for (const auto& [id, job] : state().jobs)
        if (visible(job.project))
          ++counts[job.state];
    std::string text = fmt::format(
        "{{\"gpus\":{},\"gpus_free_milli\":{},\"gpus_drained_milli\":{},\"gpus_lost_milli\":{},"
        "\"gpus_reserved_milli\":{},\"nodes\":{},\"nodes_ready\":{},\"nodes_drained\":{},\"held\":{"
        "},"
        "\"queued\":{},\"running\":{},\"suspended\":{},\"spend_nano\":{},\"idle_nano\":{},"
        "\"idle_jobs\":[{}],\"scope\":\"{}\",\"store\":\"{}\"}}",
        fleet.gpus, fleet.free_milli, fleet.drained_milli, fleet.lost_milli, fleet.reserved_milli,
        fleet.nodes, fleet.nodes_ready, fleet.nodes_drained, counts[JobState::held],
        counts[JobState::queued], counts[JobState::running], counts[JobState::suspended], spend,
        idle, idle_list, sees_all() ? "all" : "projects",
        store_health_name(call->host.journal().health()));
    if (text == summary)
      return false;
    append_format(out, ",\"summary\":{}", text);
    summary = std::move(text);
    return true;
  }
};

}  // namespace

void live(CallPtr call) {
  std::vector<LogWish> wishes;
  for (const std::string& job : split(call->request().param("job"), ',')) {
    if (job.empty())
      continue;
    auto wish = parse_wish(*call, Json::object({{"job", job}}));
    if (!wish)
      return call->fail(wish.error());
    wishes.push_back(std::move(*wish));
  }
  if (wishes.size() > live_logs_max)
    return call->fail(
        {Code::invalid, fmt::format("a stream can follow at most {} logs", live_logs_max)});
  auto stream = std::make_shared<Live>();
  stream->call = call;
  stream->begin();
  stream->logs->set(wishes);
}

}  // namespace billow::api::streams
