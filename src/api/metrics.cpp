// /metrics for Prometheus: the GPUs under dcgm-exporter's names, and Billow's own figures as
// billow_*: queue, latency, ledger, idle, health, gateway. Money, budgets, idle jobs and endpoints
// are shown for the projects the caller may see; the fleet, its queue and the head itself name no
// project and are shown to everybody. An admin's token sees everything, also a read-only one. Made
// from the state and the newest readings; a scrape changes nothing. Charges come from the ledger's
// sums, read by a worker.
#include <fmt/format.h>

#include "api/call.h"
#include "base/exposition.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"
#include "core/wire/gpu_metrics.h"
#include "net/http/gzip.h"
#include "view/cost.h"
#include "view/fleet_documents.h"
#include "view/idle_jobs.h"
#include "view/names.h"

namespace billow::api::admin {
namespace {

// Which job holds which GPU, to join utilisation with jobs, users and projects. One series per
// share that is held: as many as GPUs, or as slices where cards are shared.
void add_holders(Exposition& out, const Call& call, const Node& node) {
  const auto& state = call.host.state();
  const auto on = state.tasks_on.find(node.id);
  if (on == state.tasks_on.end())
    return;
  for (const TaskId id : on->second) {
    const Task& task = state.tasks.at(id);
    const Job& job = state.jobs.at(task.job);
    if (!task.holds_gpus() || !may_see(call, job.project))
      continue;
    for (const GpuGrant& grant : task.gpus) {
      if (static_cast<std::size_t>(grant.gpu) >= node.offer.gpus.size())
        continue;
      const NodeGpu& gpu = node.offer.gpus[static_cast<std::size_t>(grant.gpu)];
      out.add("billow_gpu_job_info", "gauge", "The share of a GPU that a job holds, 0 to 1.",
              fmt::format("gpu=\"{}\",{},{},{},{},{}", gpu.index, metric_label("UUID", gpu.uuid),
                          metric_label("Hostname", node.offer.name),
                          metric_label("job", view::job_label(job)),
                          metric_label("user", view::user_name(state, job.user)),
                          metric_label("project", view::project_name(state, job.project))),
              static_cast<double>(grant.share.milli) / 1000);
    }
  }
}

void add_fleet(Exposition& out, const Call& call) {
  const Host& host = call.host;
  const auto& state = host.state();
  for (const auto& [id, node] : state.nodes) {
    std::vector<std::int64_t> milli(node.offer.gpus.size());
    if (const auto on = state.tasks_on.find(id); on != state.tasks_on.end())
      for (TaskId task : on->second)
        for (const GpuGrant& grant : state.tasks.at(task).gpus)
          if (ledger::gpu_milli(state.tasks.at(task)) &&
              static_cast<std::size_t>(grant.gpu) < milli.size())
            milli[static_cast<std::size_t>(grant.gpu)] += grant.share.milli;
    const std::string name = metric_label("Hostname", node.offer.name);
    if (const auto* beat = host.readings(id)) {
      wire::add_gpus(out, node.offer.name, node.offer.gpus, *beat);
      out.add("billow_node_cpu_used_cores", "gauge", "CPU cores in use on the node.", name,
              static_cast<double>(beat->cpu_used_milli) / 1000);
      out.add("billow_node_memory_used_mib", "gauge", "Memory in use on the node, in MiB.", name,
              static_cast<double>(beat->mem_used_mib));
    }
    add_holders(out, call, node);
    for (std::size_t i = 0; i < node.offer.gpus.size(); ++i) {
      const std::string labels = wire::gpu_labels(node.offer.gpus[i], node.offer.name);
      out.add("billow_gpu_given_out", "gauge", "Share of the GPU held by leases, 0 to 1.", labels,
              static_cast<double>(milli[i]) / 1000);
      out.add("billow_gpu_healthy", "gauge", "1 if the GPU accepts work, else 0.", labels,
              node.gpu_trouble(node.offer.gpus[i]).empty() && node.reachable ? 1 : 0);
    }
  }
}

// Charge rates, and which part of them goes to idle jobs (view/idle_jobs.h).
void add_money(Exposition& out, const Call& call) {
  const Host& host = call.host;
  const auto& state = host.state();
  const auto visible = [&](ProjectId project) {
    return call.may(Permission::money_read, project);
  };
  std::map<ProjectId, std::pair<std::int64_t, std::int64_t>> nano;  // spend, idle
  for (const auto& [id, project] : state.projects)
    if (visible(id))
      nano[id];
  for (const auto& [id, task] : state.tasks)
    if (task.state != TaskState::ended && visible(state.jobs.at(task.job).project))
      nano[state.jobs.at(task.job).project].first += view::charge_rate_now(state, task);
  std::int64_t held_idle_milli = 0, held_hung = 0;
  for (const auto& [id, job] :
       view::idle_jobs(state, [&](NodeId node) { return host.readings(node); })) {
    if (!visible(state.jobs.at(id).project))
      continue;
    nano[state.jobs.at(id).project].second += job.nano_usd_per_s;
    held_idle_milli += job.gpu_milli;
  }
  for (const auto& [id, idle] : state.money.idling)
    if (const Task* task = state.find_task(id);
        task && idle.state == IdleState::hung && visible(state.jobs.at(task->job).project))
      ++held_hung;
  for (const auto& [id, amounts] : nano) {
    const std::string project = metric_label("project", state.projects.at(id).name);
    out.add("billow_spend_usd_per_second", "gauge",
            "Current charge rate by project, in USD per second.", project,
            static_cast<double>(amounts.first) / 1e9);
    out.add("billow_idle_usd_per_second", "gauge",
            "Charge rate of jobs idle for at least one minute, in USD per second.", project,
            static_cast<double>(amounts.second) / 1e9);
  }
  for (const auto& [key, use] : control::budget_uses(state, host.billed())) {
    const auto entry = state.money.budgets.find(key);
    if (entry == state.money.budgets.end() || !may_see_budget(call, key))
      continue;
    std::string of = fmt::format("{}", key.of);
    if (const auto p = state.projects.find(ProjectId(key.of));
        key.scope == BudgetScope::project && p != state.projects.end())
      of = p->second.name;
    if (const auto u = state.users.find(UserId(key.of));
        key.scope == BudgetScope::user && u != state.users.end())
      of = u->second.name;
    const std::string labels =
        fmt::format("{},{}", metric_label("budget", fmt::format("{} {}", enum_name(key.scope), of)),
                    metric_label("period", enum_name(key.period)));
    out.add("billow_budget_spent_usd", "gauge",
            "Amount spent of a budget in its current period, in USD.", labels,
            static_cast<double>(use.spent.value) / 1e9);
    out.add("billow_budget_limit_usd", "gauge", "Limit of a budget per period, in USD.", labels,
            static_cast<double>(entry->second.budget.limit.value) / 1e9);
  }
  out.add("billow_gpus_idle", "gauge", "GPUs held by jobs idle for at least one minute.", "",
          static_cast<double>(held_idle_milli) / 1000);
  out.add("billow_tasks_hung", "gauge",
          "Tasks that look hung: the GPU reports being busy but draws only idle power.", "",
          static_cast<double>(held_hung));
}

void add_head(Exposition& out, const Host& host) {
  const auto& state = host.state();
  for (const JobState s :
       {JobState::held, JobState::queued, JobState::running, JobState::suspended}) {
    const auto found = state.count.find(s);
    out.add("billow_jobs", "gauge", "Jobs that have not ended, by state.",
            metric_label("state", enum_name(s)),
            found == state.count.end() ? 0.0 : static_cast<double>(found->second));
  }
  const view::FleetCounts fleet = view::fleet_counts(
      state, [&](NodeId node) { return host.readings(node); }, host.now());
  for (const auto& [name, count] :
       {std::pair("drained", fleet.nodes_drained), std::pair("ready", fleet.nodes_ready),
        std::pair("unreachable", fleet.nodes_unreachable)})
    out.add("billow_nodes", "gauge", "Nodes by state.", metric_label("state", name),
            static_cast<double>(count));
  out.add("billow_gpus", "gauge", "GPUs on all nodes.", "", static_cast<double>(fleet.gpus));
  const auto cards = [&](const char* name, const char* help, std::int64_t milli) {
    out.add(name, "gauge", help, "", static_cast<double>(milli) / 1000);
  };
  cards("billow_gpus_free", "GPUs that are free now: not held, drained, lost or reserved.",
        fleet.free_milli);
  cards("billow_gpus_drained", "GPUs that are not held and take no work because they are drained.",
        fleet.drained_milli);
  cards("billow_gpus_lost", "GPUs that are not held and do not answer, alone or with their node.",
        fleet.lost_milli);
  cards("billow_gpus_reserved", "GPUs that are not held and belong to a reservation now.",
        fleet.reserved_milli);
  double oldest = 0;
  std::int64_t wanted_milli = 0;
  std::size_t looked = 0;
  for (const auto& [id, job] :
       state.jobs) {  // numbers rise with time, so the first queued one is the oldest
    if (job.state != JobState::queued)
      continue;
    if (oldest == 0)
      oldest = std::max(1e-3, (host.now() - job.submitted_at).seconds());
    wanted_milli += asked_gpu_milli(*job.spec);
    if (++looked == 100'000)
      break;
  }
  out.add("billow_queue_oldest_seconds", "gauge",
          "Time the oldest queued job has waited, in seconds; 0 if none waits.", "", oldest);
  out.add("billow_queue_gpus_wanted", "gauge", "GPUs requested by queued jobs.", "",
          static_cast<double>(wanted_milli) / 1000);
  for (const JobState s :
       {JobState::succeeded, JobState::failed, JobState::stopped, JobState::lost})
    out.add("billow_jobs_ended_total", "counter",
            "Jobs that ended since the head started, by final state.",
            metric_label("state", enum_name(s)),
            static_cast<double>(host.telemetry().jobs_ended[static_cast<std::size_t>(s)]));
  out.add("billow_journal_events_total", "counter", "Events written to the journal.", "",
          static_cast<double>(state.seq));
  out.add("billow_journal_kept_events", "gauge",
          "Events in the journal, excluding audit events, which are kept longer.", "",
          static_cast<double>(host.journal().records()));
  out.add("billow_journal_queued_bytes", "gauge",
          "Bytes appended to the journal that are not on disk yet.", "",
          static_cast<double>(host.journal().queued_bytes()));
  out.add("billow_store_disk_low", "gauge",
          "1 if the disk is full and new work is refused, else 0.", "",
          host.journal().health() == StoreHealth::ok ? 0 : 1);
  out.add("billow_history_bytes", "gauge", "Disk space used by the history, in bytes.", "",
          static_cast<double>(host.history().bytes()));
}

// Exemplars name jobs and requests of all projects, so only those who see all of them get any.
void add_latency(Exposition& out, const Call& call) {
  const Telemetry& t = call.host.telemetry();
  const bool all = call.may(Permission::jobs_read) && call.may(Permission::audit_read);
  out.add("billow_job_wait_seconds", "Time from submission to placement of a job.", t.wait, {},
          all ? "job" : nullptr);
  out.add("billow_command_seconds", "Time to decide and plan one command.", t.command, {},
          all ? "request_id" : nullptr);
  out.add("billow_journal_durable_seconds",
          "Time from appending to the journal until the record is on disk.", t.durable);
}

// Who holds the head's HTTP server, and what it has refused.
void add_server(Exposition& out, const Host& host) {
  const net::ServerFigures figures = host.server_figures();
  for (std::size_t i = 0; i < net::caller_kinds; ++i)
    out.add("billow_http_connections", "gauge", "Open connections to the head, by kind of caller.",
            metric_label("caller", net::caller_kind_name(static_cast<net::CallerKind>(i))),
            static_cast<double>(figures.connections[i]));
  for (std::size_t i = 0; i < net::refused_reasons; ++i)
    out.add("billow_http_refused_total", "counter",
            "Connections and requests refused because of a limit, by limit.",
            metric_label("limit", net::refused_name(static_cast<net::Refused>(i))),
            static_cast<double>(figures.refused[i]));
  out.add("billow_http_body_bytes", "gauge", "Bytes of request bodies in memory.", "",
          static_cast<double>(figures.body_bytes));
}

// The newest figures from the gateways, under the names that a gateway's own /metrics uses.
void add_endpoints(Exposition& out, const Call& call) {
  const Host& host = call.host;
  using gateway::EndpointFigures;
  const auto& state = host.state();
  const auto micro = [](std::int64_t us) {
    return static_cast<double>(us) / 1e6;
  };
  for (const auto& [name, endpoint] : state.endpoints) {
    const EndpointFigures* f = host.endpoint_figures(name);
    if (!f || !may_see(call, endpoint.project))
      continue;
    const auto project = state.projects.find(endpoint.project);
    const std::string labels = fmt::format(
        "{},{}", metric_label("endpoint", name),
        metric_label("project", project == state.projects.end() ? "" : project->second.name));
    const auto count = [&](const char* family, const char* help, std::uint64_t value) {
      out.add(family, "counter", help, labels, static_cast<double>(value));
    };
    const auto now = [&](const char* family, const char* help, double value) {
      out.add(family, "gauge", help, labels, value);
    };
    count("billow_endpoint_requests_total", "Requests received.", f->requests);
    count("billow_endpoint_failed_total",
          "Requests that failed, timed out, or were answered with 5xx.", f->failed);
    count("billow_endpoint_refused_total", "Requests refused because the queue was full.",
          f->refused);
    count("billow_endpoint_cancelled_total", "Requests whose client disconnected.", f->cancelled);
    count("billow_endpoint_retried_total", "Requests retried on another replica.", f->retried);
    count("billow_endpoint_cold_starts_total", "Replicas started from zero (cold starts).",
          f->cold_starts);
    count("billow_endpoint_left_out_total", "Unhealthy replicas taken out of service.",
          f->left_out);
    count("billow_endpoint_wakes_total", "Replicas resumed from sleep.", f->wakes);
    count("billow_endpoint_tokens_in_total", "Prompt tokens, as reported in answers.",
          f->tokens_in);
    count("billow_endpoint_tokens_out_total", "Generated tokens, as reported in answers.",
          f->tokens_out);
    now("billow_endpoint_held", "Requests waiting for a replica.", static_cast<double>(f->held));
    now("billow_endpoint_in_flight", "Requests being served.", static_cast<double>(f->in_flight));
    now("billow_endpoint_replicas_ready", "Replicas that are awake.", f->ready);
    now("billow_endpoint_replicas_sleeping", "Replicas that are asleep (suspended).", f->sleeping);
    now("billow_endpoint_replicas_coming", "Replicas that are starting or waking.", f->coming);
    now("billow_endpoint_replicas_wanted", "Replicas wanted by the autoscaler.", f->wanted);
    now("billow_endpoint_first_byte_seconds_p50",
        "Time to the first byte, median since the gateway started, in seconds.",
        micro(f->first_byte_p50_us));
    now("billow_endpoint_first_byte_seconds_p99",
        "Time to the first byte, 99th percentile since the gateway started, in seconds.",
        micro(f->first_byte_p99_us));
    if (!f->first_byte.counts.empty())
      out.add("billow_endpoint_first_byte_seconds",
              "Time to the first byte since the gateway started, in seconds.", f->first_byte,
              labels, "trace_id", &f->first_byte_native);
    now("billow_endpoint_held_seconds_p99",
        "Time requests waited for a replica, 99th percentile since the gateway started, in "
        "seconds.",
        micro(f->held_p99_us));
    now("billow_endpoint_wake_seconds_p50", "Median time to wake a replica, in seconds.",
        micro(f->wake_us));
  }
}

}  // namespace

void with_metrics(CallPtr call, MetricsFormat format, std::function<void(Result<std::string>)> fn) {
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries()] { return queries.usage({.by_project = true}); },
      [call, format, fn](Result<std::vector<UsageRow>> rows) {
        Exposition out(format);
        add_fleet(out, *call);
        add_head(out, call->host);
        add_latency(out, *call);
        add_server(out, call->host);
        add_money(out, *call);
        add_endpoints(out, *call);
        if (rows)
          for (const UsageRow& row : *rows) {
            const auto project = call->host.state().projects.find(row.project);
            if (project == call->host.state().projects.end() || !may_see(*call, row.project))
              continue;
            out.add("billow_charged_usd_total", "counter", "Total charge by project, in USD.",
                    metric_label("project", project->second.name),
                    static_cast<double>(row.charge.value) / 1e9);
            out.add("billow_gpu_seconds_total", "counter", "Total GPU seconds charged, by project.",
                    metric_label("project", project->second.name),
                    static_cast<double>(row.gpu_milli_ms) / 1e6);
          }
        fn(out.text());
      });
  if (!queued)
    fn(pass(queued.error()));
}

namespace {

// What the scraper names first. Prometheus asks for OpenMetrics, and with native histograms
// switched on for protobuf before it; curl and older scrapers get the text format.
MetricsFormat format_for(std::string_view accept) {
  const auto protobuf = accept.find("application/vnd.google.protobuf"),
             openmetrics = accept.find("application/openmetrics-text");
  if (protobuf < openmetrics && accept.find("encoding=delimited") != accept.npos)
    return MetricsFormat::protobuf;
  return openmetrics == accept.npos ? MetricsFormat::prometheus : MetricsFormat::openmetrics;
}

const char* content_type(MetricsFormat format) {
  switch (format) {
    case MetricsFormat::prometheus:
      return "text/plain; version=0.0.4; charset=utf-8";
    case MetricsFormat::openmetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case MetricsFormat::protobuf:
      return "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
             "encoding=delimited";
  }
  return "";
}

}  // namespace

void metrics(CallPtr call) {
  const MetricsFormat format = format_for(call->request().headers.get("Accept"));
  with_metrics(call, format, [call, format](Result<std::string> text) {
    if (!text)
      return call->fail(text.error());
    net::Response response;
    response.headers = {{"Content-Type", content_type(format)}, {"Vary", "Accept"}};
    response.body = std::move(*text);
    net::compress_for(call->request(), response);
    call->exchange->respond(std::move(response));
  });
}

}  // namespace billow::api::admin
