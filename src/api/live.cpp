// GET /v1/live: everything a dashboard or `billow top` shows, as one stream of server-sent events.
// First all of it, then only what changed: jobs whose row differs from the one sent, nodes, and the
// GPUs' readings every two seconds. A stream keeps a hash of what it has sent, so an idle fleet
// costs a walk over its GPUs and a line; a client that reconnects is told everything anew.
//
// Bounded: rows go out in pieces, the next when the last has been taken; beyond
// limits::live_jobs_max jobs the newest are shown and the summary says how many there are.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "api/call.h"
#include "api/documents.h"
#include "api/idle_now.h"
#include "api/times.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"
#include "net/http/sse.h"

namespace billow::api::streams {
namespace {

constexpr Duration look_every = milliseconds(500);
constexpr int readings_every = 4;  // looks
constexpr std::size_t rows_per_piece = 400;
constexpr std::size_t piece_ahead_bytes = 256 << 10;
constexpr std::size_t command_bytes_max =
    160;                                // of a row; the whole command is on the job's own page
constexpr std::size_t ended_max = 100;  // documents of ended jobs in one piece

std::uint64_t mix(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x9e3779b97f4a7c15ull + (hash >> 29);
}
std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  return mix(hash, std::hash<std::string_view>{}(text));
}

template <class... Args>
void put(std::string& out, fmt::format_string<Args...> format, Args&&... args) {
  fmt::format_to(std::back_inserter(out), format, std::forward<Args>(args)...);
}

void put_time(std::string& out, const char* name, WallTime at) {
  if (at)
    put(out, ",\"{}\":{}", name, at.ns / 1'000'000);
}

// What a job that was placed and has not begun waits for: its image, its environment. No event
// tells of it.
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

// Times are milliseconds since 1970; money is nano-dollars: what has been spent at `at`, and what
// goes on being spent per second. `closed` is what it ran and was suspended before the lease it
// holds now; null: not known yet.
void put_job(std::string& out,
             const control::State& state,
             const Job& job,
             std::string_view reason,
             const JobTimes* closed,
             WallTime now,
             WallTime billed) {
  NanoUsd cost = job.cost;
  std::int64_t rate = 0;
  put(out, "{{\"id\":{},\"label\":", job.id.value);
  append_json_string(out, job_label(job));
  out += ",\"name\":";
  append_json_string(out, job.spec->name);
  out += ",\"command\":";
  append_json_string(out, utf8_prefix(shell_join(job.spec->argv), command_bytes_max));
  const auto user = state.users.find(job.user);
  out += ",\"user\":";
  append_json_string(out, user == state.users.end() ? "" : user->second.name);
  out += ",\"project\":";
  append_json_string(out, state.projects.at(job.project).name);
  put(out, ",\"state\":\"{}\",\"reason\":", enum_name(job.state));
  append_json_string(out, reason);
  const auto& spec = *job.spec;
  put(out, ",\"gpu_milli\":{},\"spot\":{},\"pty\":{},\"attempt\":{}",
      spec.resources.gpus
          ? spec.resources.share.milli * spec.resources.gpus * static_cast<std::int64_t>(spec.nodes)
          : 0,
      spec.spot, spec.pty, job.attempt);
  put_time(out, "submitted", job.submitted_at);
  put_time(out, "started", job.started_at);
  if (job.started_at && closed)
    put(out, ",\"ran\":{},\"suspended\":{}", closed->ran.ms(), closed->suspended.ms());
  if (!job.tasks.empty())
    put_time(out, "since", state.tasks.at(job.tasks.front()).lease_from);
  out += ",\"where\":[";
  bool first = true;
  for (TaskId id : job.tasks) {
    const Task& task = state.tasks.at(id);
    if (task.state == TaskState::ended)
      continue;
    cost +=
        ledger::lease_cost(task, task.state == TaskState::unreachable
                                     ? std::min(billed, state.nodes.at(task.node).unreachable_since)
                                     : billed) +
        control::egress_so_far(state, task.id);
    if (task.state != TaskState::unreachable)
      rate += task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000;
    put(out, "{}[{}", first ? "" : ",", task.node.value);
    if (ledger::gpu_milli(task))
      for (const GpuGrant& grant : task.gpus)
        put(out, ",{}", grant.gpu);
    out += ']';
    first = false;
  }
  put(out, "],\"cost_nano\":{},\"rate_nano\":{},\"at\":{}}}", cost.value, rate, now.ns / 1'000'000);
}

void put_array(std::string& out, const control::State& state, const control::ArrayState& array) {
  put(out, "{{\"id\":{},\"label\":\"{}\",\"name\":", array.id.value, array.id.value);
  append_json_string(out, array.spec->name);
  out += ",\"command\":";
  append_json_string(out, utf8_prefix(shell_join(array.spec->argv), command_bytes_max));
  const auto user = state.users.find(array.user);
  out += ",\"user\":";
  append_json_string(out, user == state.users.end() ? "" : user->second.name);
  out += ",\"project\":";
  append_json_string(out, state.projects.at(array.project).name);
  put(out,
      ",\"state\":\"{}\",\"reason\":\"{} of {} done, {} "
      "running\",\"gpu_milli\":{},\"spot\":{},\"pty\":false,\"attempt\":0",
      array.running ? "running" : "queued", array.count - array.left, array.count, array.running,
      array.spec->resources.gpus ? array.spec->resources.share.milli * array.spec->resources.gpus
                                 : 0,
      array.spec->spot);
  put_time(out, "submitted", array.submitted_at);
  put(out, ",\"where\":[],\"cost_nano\":{},\"rate_nano\":0,\"at\":0}}", array.cost.value);
}

struct Live : std::enable_shared_from_this<Live> {
  CallPtr call;
  std::unique_ptr<Subscription> changes;
  net::Timer timer;
  bool dirty = true, done = false, sending = false;
  int looks = 0;
  std::unordered_map<JobId, std::uint64_t> jobs;  // hash of the row as sent
  std::unordered_map<NodeId, std::uint64_t> nodes;
  std::unordered_map<NodeId, std::vector<std::uint64_t>> readings;
  std::string summary;
  struct Held {
    std::uint64_t leases = 0;
    std::optional<JobTimes> closed;
  };
  std::unordered_map<JobId, Held>
      held;  // what leases that have ended say of jobs that held several

  // What is known of a job's earlier leases. The store is asked once for each change of them, and
  // the row is sent again then.
  const JobTimes* closed_of(const Job& job) {
    static const JobTimes none;
    if (!held_before(state(), job))
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
            at->second.closed = times_of(*rows, nodes);
            self->jobs[id] = 0;
            self->dirty = true;
          });
      if (!queued)
        known.leases = 0;  // too much to do just now: asked again when the row changes
    }
    return known.closed ? &*known.closed : nullptr;
  }

  const control::State& state() const { return call->host.state(); }
  bool visible(ProjectId project) const {
    return control::role_in(state(), call->principal, project).has_value();
  }
  bool sees_all() const {
    return std::all_of(state().projects.begin(), state().projects.end(),
                       [this](const auto& p) { return visible(p.first); });
  }

  void begin() {
    call->exchange->start_stream(
        200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}});
    changes = call->host.watch_events([weak = weak_from_this()](const Event&) {
      if (auto self = weak.lock())
        self->dirty = true;
    });
    timer = call->host.loop().every(look_every, [self = shared_from_this()] { self->look(); });
    call->exchange->on_drain([weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->look_on();
    });
    call->exchange->on_close([self = shared_from_this()] {
      self->done = true;
      self->call->host.loop().post([self] {
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
    // A token that has ended meanwhile ends its stream too; a client that comes again hears why.
    if (all && !call->still_allowed())
      return call->exchange->abort();
    send(all);
  }
  void look_on() {
    if (!done && dirty)
      send(false);
  }
  // Of a job that was shown: it may have left, and so may whoever looks have left its project.
  bool still_shown(JobId id) const {
    const auto owner = owner_of(state(), id);
    return owner && visible(owner->project);
  }

  // What has changed since the last piece, as far as one piece goes.
  void send(bool with_readings) {
    if (sending)
      return;
    sending = true;
    dirty = false;
    const WallTime now = call->host.now();
    std::string out = fmt::format("{{\"now\":{}", now.ns / 1'000'000);
    bool news = add_jobs(out, now);
    news = add_nodes(out) || news;
    if (with_readings)
      news = add_readings(out) || news;
    news = add_summary(out) || news;
    out += '}';
    if (!news && looks % (readings_every * 8) != 1) {
      sending = false;
      return;
    }  // now and then a sign of life
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

  bool add_jobs(std::string& out, WallTime now) {
    std::vector<JobId> gone;
    for (const auto& [id, hash] : jobs)
      if (!still_shown(id))
        gone.push_back(id);
    std::size_t rows = 0;
    std::string list;
    for (const auto& [id, array] : state().arrays) {
      if (!visible(array.project))
        continue;
      std::uint64_t& sent = jobs[id];
      const std::uint64_t hash = mix(mix(2, array.left), array.running);
      if (sent == hash)
        continue;
      if (rows++ >= rows_per_piece) {
        dirty = true;
        break;
      }
      sent = hash;
      if (!list.empty())
        list += ',';
      put_array(list, state(), array);
    }
    // Newest first: what a person looks for, should there be more than is shown.
    std::size_t seen = 0;
    for (auto at = state().jobs.rbegin(); at != state().jobs.rend() && seen < limits::live_jobs_max;
         ++at) {
      const Job& job = at->second;
      if (!visible(job.project) || (job.array && job.tasks.empty()))
        continue;
      ++seen;
      const std::string starts = brought(call->host, job);
      const std::uint64_t hash = mix(signature(state(), job), starts);
      std::uint64_t& sent = jobs[job.id];
      if (sent == hash)
        continue;
      if (rows++ >= rows_per_piece) {
        dirty = true;
        sent = 0;
        break;
      }
      sent = hash;
      if (!list.empty())
        list += ',';
      put_job(list, state(), job, starts.empty() ? job.reason : starts, closed_of(job), now,
              call->host.billed());
    }
    if (!list.empty())
      put(out, ",\"jobs\":[{}]", list);
    if (!gone.empty()) {
      out += ",\"gone\":[";
      std::string ended;
      std::size_t documents = 0;
      for (std::size_t i = 0; i < gone.size(); ++i) {
        put(out, "{}{}", i ? "," : "", gone[i].value);
        jobs.erase(gone[i]);
        held.erase(gone[i]);
        if (documents >= ended_max)
          continue;
        const std::string document = call->host.recently_finished(gone[i]);
        const auto json = parse_json(document);
        if (const Project* project =
                json ? state().project_by_name((*json)["project"].str_or("")) : nullptr;
            project && visible(project->id)) {
          if (!ended.empty())
            ended += ',';
          ended += document;
          ++documents;
        }
      }
      out += "]";
      if (!ended.empty())
        put(out, ",\"ended\":[{}]", ended);
    }
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
      nodes[id] = hash;  // not before it is told: readings of a node that the other side does not
                         // know would be lost on it
      if (!list.empty())
        list += ',';
      list += node_document(state(), node, nullptr).dump();
    }
    if (!list.empty())
      put(out, ",\"nodes\":[{}]", list);
    if (!gone.empty()) {
      out += ",\"nodes_gone\":[";
      for (std::size_t i = 0; i < gone.size(); ++i) {
        put(out, "{}{}", i ? "," : "", gone[i].value);
        nodes.erase(gone[i]);
        readings.erase(gone[i]);
      }
      out += ']';
    }
    return !list.empty() || !gone.empty();
  }

  // [node, gpu, milli given out, busy %, memory MiB, watts, °C, score, [jobs]] of every GPU whose
  // figures changed.
  bool add_readings(std::string& out) {
    std::string list, hosts;
    for (const auto& [id, node] : state().nodes) {
      if (!nodes.contains(id))
        continue;
      std::vector<std::int64_t> milli(node.offer.gpus.size());
      std::vector<std::string> who(node.offer.gpus.size());
      if (const auto on = state().tasks_on.find(id); on != state().tasks_on.end()) {
        for (TaskId task_id : on->second) {
          const Task& task = state().tasks.at(task_id);
          if (ledger::gpu_milli(task) == 0)
            continue;  // suspended: its cards are free
          const bool shown = visible(state().jobs.at(task.job).project);
          for (const GpuGrant& grant : task.gpus) {
            const auto gpu = static_cast<std::size_t>(grant.gpu);
            if (gpu >= milli.size())
              continue;
            milli[gpu] += grant.share.milli;
            if (shown)
              put(who[gpu], "{}{}", who[gpu].empty() ? "" : ",", task.job.value);
          }
        }
      }
      const auto* beat = call->host.readings(id);
      auto& sent = readings[id];
      sent.resize(node.offer.gpus.size() + 1);
      for (std::size_t i = 0; i < node.offer.gpus.size(); ++i) {
        const wire::agent_v1::GpuReading* r = nullptr;
        if (beat)
          for (const auto& reading : beat->gpus)
            if (static_cast<std::size_t>(reading.gpu) == i) {
              r = &reading;
              break;
            }
        // Watts and MiB as they are shown, so that noise below a pixel sends nothing.
        const std::int64_t watts = r ? r->power_mw / 1000 : -1, mem = r ? r->mem_used_mib : -1;
        std::uint64_t hash = mix(mix(4, static_cast<std::uint64_t>(milli[i])), who[i]);
        if (r)
          hash = mix(mix(mix(mix(mix(mix(hash, static_cast<std::uint64_t>(r->util_pct)),
                                     static_cast<std::uint64_t>(mem)),
                                 static_cast<std::uint64_t>(watts)),
                             static_cast<std::uint64_t>(r->temperature_c)),
                         static_cast<std::uint64_t>(r->score)),
                     r->fault);
        if (sent[i] == hash)
          continue;
        sent[i] = hash;
        put(list, "{}[{},{},{},{},{},{},{},{},[{}]", list.empty() ? "" : ",", id.value, i, milli[i],
            r ? r->util_pct : -1, mem, watts, r ? r->temperature_c : -1, r ? r->score : -1, who[i]);
        if (r && !r->fault.empty()) {
          list += ',';
          append_json_string(list, r->fault);
        }
        list += ']';
      }
      if (beat) {
        const std::uint64_t hash =
            mix(mix(5, static_cast<std::uint64_t>(beat->cpu_used_milli / 100)),
                static_cast<std::uint64_t>(beat->mem_used_mib / 64));
        if (sent.back() != hash) {
          sent.back() = hash;
          put(hosts, "{}[{},{},{}]", hosts.empty() ? "" : ",", id.value, beat->cpu_used_milli,
              beat->mem_used_mib);
        }
      }
    }
    if (!list.empty())
      put(out, ",\"gpus\":[{}]", list);
    if (!hosts.empty())
      put(out, ",\"hosts\":[{}]", hosts);
    return !list.empty() || !hosts.empty();
  }

  // Counts and money of the moment. `idle` is what the jobs are charged that do nothing right now
  // (idle_now.h), by number. All of it is of the projects the caller may see, but for the nodes and
  // their GPUs, which are everybody's.
  bool add_summary(std::string& out) {
    std::int64_t gpus = 0, free_milli = 0, spend = 0, idle = 0;
    std::size_t ready = 0;
    for (const auto& [id, node] : state().nodes) {
      gpus += static_cast<std::int64_t>(node.offer.gpus.size());
      if (node.reachable)
        ++ready, free_milli += state().index.free_milli(id);
    }
    for (const auto& [id, task] : state().tasks) {
      if (task.state == TaskState::ended || !visible(state().jobs.at(task.job).project))
        continue;
      spend += task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000;
    }
    std::string idle_list;
    std::size_t listed = 0;
    for (const auto& [id, job] :
         idle_jobs(state(), [this](NodeId node) { return call->host.readings(node); })) {
      if (!visible(state().jobs.at(id).project))
        continue;
      idle += job.nano_usd_per_s;
      if (++listed <= limits::live_jobs_max)
        put(idle_list, "{}{}", idle_list.empty() ? "" : ",", id.value);
    }
    std::map<JobState, std::uint64_t> counts;
    if (sees_all())
      counts.insert(state().count.begin(), state().count.end());
    else
      for (const auto& [id, job] : state().jobs)
        if (visible(job.project))
          ++counts[job.state];
    std::string text = fmt::format(
        "{{\"gpus\":{},\"gpus_free_milli\":{},\"nodes\":{},\"nodes_ready\":{},\"held\":{},"
        "\"queued\":{},\"running\":{},\"suspended\":{},\"spend_nano\":{},\"idle_nano\":{},"
        "\"idle_jobs\":[{}],\"scope\":\"{}\",\"store\":\"{}\"}}",
        gpus, free_milli, state().nodes.size(), ready, counts[JobState::held],
        counts[JobState::queued], counts[JobState::running], counts[JobState::suspended], spend,
        idle, idle_list, sees_all() ? "all" : "projects",
        store_health_name(call->host.journal().health()));
    if (text == summary)
      return false;
    put(out, ",\"summary\":{}", text);
    summary = std::move(text);
    return true;
  }
};

}  // namespace

void live(CallPtr call) {
  auto stream = std::make_shared<Live>();
  stream->call = call;
  stream->begin();
}

}  // namespace billow::api::streams
