// /metrics for Prometheus: the GPUs under dcgm-exporter's names, and Billow's own figures as
// billow_*: queue, latency, ledger, idle, health, gateway. Of projects' money, budgets, idle jobs
// and endpoints, whoever asks is told what their projects have; the fleet, its queue and the head
// itself are nobody's secret, and name nobody. An admin's token, also one that may only look, is
// told everything. Made from the state and the newest readings; a scrape changes nothing. What was
// charged comes from the ledger's sums, by way of a worker.
#include <fmt/format.h>

#include "api/call.h"
#include "base/exposition.h"
#include "core/control/money.h"
#include "core/ledger/meter.h"
#include "core/wire/gpu_metrics.h"
#include "view/idle_jobs.h"

namespace billow::api::admin {
namespace {

void add_fleet(Exposition& out, const Host& host) {
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
      out.add("billow_node_memory_used_mib", "gauge", "Memory in use on the node.", name,
              static_cast<double>(beat->mem_used_mib));
    }
    for (std::size_t i = 0; i < node.offer.gpus.size(); ++i) {
      const std::string labels = wire::gpu_labels(node.offer.gpus[i], node.offer.name);
      out.add("billow_gpu_given_out", "gauge", "Share of the GPU that leases hold, 0 to 1.", labels,
              static_cast<double>(milli[i]) / 1000);
      out.add("billow_gpu_healthy", "gauge", "1 while the GPU takes work.", labels,
              node.gpu_trouble(node.offer.gpus[i]).empty() && node.reachable ? 1 : 0);
    }
  }
}

// What leases cost now, and what of it is for jobs that do nothing (idle_now.h).
void add_money(Exposition& out, const Call& call) {
  const Host& host = call.host;
  const auto& state = host.state();
  const auto visible = [&](ProjectId project) {
    return may_see(call, project).has_value();
  };
  std::map<ProjectId, std::pair<std::int64_t, std::int64_t>> nano;  // spend, idle
  for (const auto& [id, project] : state.projects)
    if (visible(id))
      nano[id];
  for (const auto& [id, task] : state.tasks)
    if (task.state != TaskState::ended && visible(state.jobs.at(task.job).project))
      nano[state.jobs.at(task.job).project].first +=
          task.rate.nano_usd_per_s * ledger::charged_milli(task) / 1000;
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
    out.add("billow_spend_usd_per_second", "gauge", "What the leases held now cost, by project.",
            project, static_cast<double>(amounts.first) / 1e9);
    out.add("billow_idle_usd_per_second", "gauge",
            "Of that, for jobs that have done nothing for a minute, by the verdict of their nodes.",
            project, static_cast<double>(amounts.second) / 1e9);
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
            "What has been spent of a budget in its running period.", labels,
            static_cast<double>(use.spent.value) / 1e9);
    out.add("billow_budget_limit_usd", "gauge", "What a budget allows.", labels,
            static_cast<double>(entry->second.budget.limit.value) / 1e9);
  }
  out.add("billow_gpus_idle", "gauge", "GPUs held by jobs that have done nothing for a minute.", "",
          static_cast<double>(held_idle_milli) / 1000);
  out.add("billow_tasks_hung", "gauge",
          "Tasks found hung: busy by their card's word, at the power of an idle one.", "",
          static_cast<double>(held_hung));
}

void add_head(Exposition& out, const Host& host) {
  const auto& state = host.state();
  for (const JobState s :
       {JobState::held, JobState::queued, JobState::running, JobState::suspended}) {
    const auto found = state.count.find(s);
    out.add("billow_jobs", "gauge", "Live jobs by state.", metric_label("state", enum_name(s)),
            found == state.count.end() ? 0.0 : static_cast<double>(found->second));
  }
  std::map<std::string, int> by_state{{"ready", 0}, {"drained", 0}, {"unreachable", 0}};
  std::int64_t gpus = 0, free_milli = 0;
  for (const auto& [id, node] : state.nodes) {
    ++by_state[!node.reachable ? "unreachable" : node.drained.empty() ? "ready" : "drained"];
    gpus += static_cast<std::int64_t>(node.offer.gpus.size());
    if (node.reachable)
      free_milli += state.index.free_milli(id);
  }
  for (const auto& [name, count] : by_state)
    out.add("billow_nodes", "gauge", "Nodes by state.", metric_label("state", name), count);
  out.add("billow_gpus", "gauge", "GPUs of all nodes.", "", static_cast<double>(gpus));
  out.add("billow_gpus_free", "gauge", "Of them, what could be given out now.", "",
          static_cast<double>(free_milli) / 1000);
  double oldest = 0;
  std::int64_t wanted_milli = 0;
  std::size_t looked = 0;
  for (const auto& [id, job] :
       state.jobs) {  // numbers rise with time, so the first queued one is the oldest
    if (job.state != JobState::queued)
      continue;
    if (oldest == 0)
      oldest = std::max(1e-3, (host.now() - job.submitted_at).seconds());
    wanted_milli += static_cast<std::int64_t>(job.spec->resources.gpus) *
                    job.spec->resources.share.milli * static_cast<std::int64_t>(job.spec->nodes);
    if (++looked == 100'000)
      break;
  }
  out.add("billow_queue_oldest_seconds", "gauge",
          "How long the oldest queued job has waited; 0: none waits.", "", oldest);
  out.add("billow_queue_gpus_wanted", "gauge", "GPUs that queued jobs ask for.", "",
          static_cast<double>(wanted_milli) / 1000);
  const Telemetry& t = host.telemetry();
  out.add("billow_job_wait_seconds", "From submission to placement.", t.wait);
  out.add("billow_command_seconds", "Deciding and planning, per command.", t.command);
  out.add("billow_journal_durable_seconds",
          "From appending to the journal until it is on the disk.", t.durable);
  for (const JobState s :
       {JobState::succeeded, JobState::failed, JobState::stopped, JobState::lost})
    out.add("billow_jobs_ended_total", "counter", "Jobs that ended since the head began, by how.",
            metric_label("state", enum_name(s)),
            static_cast<double>(t.jobs_ended[static_cast<std::size_t>(s)]));
  out.add("billow_journal_events_total", "counter", "Events in the journal.", "",
          static_cast<double>(state.seq));
  out.add("billow_journal_queued_bytes", "gauge", "Appended to the journal, not durable yet.", "",
          static_cast<double>(host.journal().queued_bytes()));
  out.add("billow_store_disk_low", "gauge", "1 while the disk is full and new work is refused.", "",
          host.journal().health() == StoreHealth::ok ? 0 : 1);
  out.add("billow_history_bytes", "gauge", "What the history takes on the disk.", "",
          static_cast<double>(host.history().bytes()));
}

// What the gateways said last of each endpoint, under the names a gateway's own /metrics has.
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
    count("billow_endpoint_requests_total", "Requests that came.", f->requests);
    count("billow_endpoint_failed_total", "Requests that failed by a replica or by time.",
          f->failed);
    count("billow_endpoint_refused_total", "Requests refused because the queue was full.",
          f->refused);
    count("billow_endpoint_cancelled_total", "Requests whose client went.", f->cancelled);
    count("billow_endpoint_retried_total", "Requests tried again on another replica.", f->retried);
    count("billow_endpoint_cold_starts_total", "Replicas that came up from nothing.",
          f->cold_starts);
    count("billow_endpoint_wakes_total", "Replicas that were woken.", f->wakes);
    count("billow_endpoint_tokens_in_total", "Tokens of prompts, where answers report them.",
          f->tokens_in);
    count("billow_endpoint_tokens_out_total", "Tokens made, where answers report them.",
          f->tokens_out);
    now("billow_endpoint_held", "Requests that wait for a replica.", static_cast<double>(f->held));
    now("billow_endpoint_in_flight", "Requests being served.", static_cast<double>(f->in_flight));
    now("billow_endpoint_replicas_ready", "Replicas awake.", f->ready);
    now("billow_endpoint_replicas_sleeping", "Replicas suspended.", f->sleeping);
    now("billow_endpoint_replicas_coming", "Replicas starting or waking.", f->coming);
    now("billow_endpoint_replicas_wanted", "Replicas the scaler wants.", f->wanted);
    now("billow_endpoint_first_byte_seconds_p50", "Time to the first byte, median since start.",
        micro(f->first_byte_p50_us));
    now("billow_endpoint_first_byte_seconds_p99",
        "Time to the first byte, 99th percentile since start.", micro(f->first_byte_p99_us));
    now("billow_endpoint_held_seconds_p99",
        "How long requests waited for a replica, 99th percentile since start.",
        micro(f->held_p99_us));
    now("billow_endpoint_wake_seconds_p50", "Median time of a wake.", micro(f->wake_us));
  }
}

}  // namespace

void metrics(CallPtr call) {
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries()] { return queries.usage({.by_project = true}); },
      [call](Result<std::vector<UsageRow>> rows) {
        Exposition out;
        add_fleet(out, call->host);
        add_head(out, call->host);
        add_money(out, *call);
        add_endpoints(out, *call);
        if (rows)
          for (const UsageRow& row : *rows) {
            const auto project = call->host.state().projects.find(row.project);
            if (project == call->host.state().projects.end() || !may_see(*call, row.project))
              continue;
            out.add("billow_charged_usd_total", "counter",
                    "What the ledger has charged, by project.",
                    metric_label("project", project->second.name),
                    static_cast<double>(row.charge.value) / 1e9);
            out.add("billow_gpu_seconds_total", "counter",
                    "GPU seconds the ledger has charged, by project.",
                    metric_label("project", project->second.name),
                    static_cast<double>(row.gpu_milli_ms) / 1e6);
          }
        net::Response response;
        response.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}};
        response.body = out.text();
        call->exchange->respond(std::move(response));
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api::admin
