#include "head/agent_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "core/control/believed.h"
#include "core/control/money.h"
#include "core/wire/spoken.h"
#include "core/wire/text_fields.h"

namespace billow::head {

using namespace wire::agent_v1;

namespace {
constexpr std::size_t frame_margin = 4096;  // for the frame around a message
}  // namespace

void AgentLinks::refuse(const AgentLinkPtr& link, std::string message, std::string hint) {
  log_warn("agent at {} refused: {}", link->peer(), message);
  link->send(Refused{std::move(message), std::move(hint)}, {});
  link->close("refused");
}

void AgentLinks::hello(const AgentLinkPtr& link, const Hello& h) {
  if (h.version < protocol_version_min)
    return refuse(link,
                  fmt::format("the agent speaks protocol {}, this head {} and newer", h.version,
                              protocol_version_min),
                  fmt::format("install billow {} on the node and restart its agent; running "
                              "jobs are not affected",
                              BILLOW_VERSION));
  const int ours = wire::spoken_protocol(std::getenv("BILLOW_TEST_PROTOCOL"));
  if ((h.version_min > 0 ? h.version_min : h.version) > ours)
    return refuse(link,
                  fmt::format("the agent speaks protocol {} and newer, this head {}",
                              h.version_min > 0 ? h.version_min : h.version, ours),
                  fmt::format("upgrade the head first, or install its version ({}) on the node",
                              BILLOW_VERSION));
  Engine& engine = engine_();
  if (h.epoch_seen > engine.state().epoch)
    return refuse(link,
                  fmt::format("the agent has seen a newer head (epoch {}, this one is {})",
                              h.epoch_seen, engine.state().epoch),
                  "stop this head: another one has taken over");
  // Before the hello can affect the node that already has this name.
  if (const Status believed =
          control::check_hello(engine.state(), {h.offer, h.tasks, link->credential});
      !believed) {
    const auto token = engine.state().tokens.find(link->credential);
    if (on_refused_ && token != engine.state().tokens.end() && token->second.pool)
      on_refused_(token->second.node, believed.error().message);
    return refuse(link, believed.error().message, believed.error().hint);
  }
  LastHello& last = last_hello_[h.offer.name];
  if (last.credential == link->credential && link->number < last.link) {
    log_info("node {}: ignoring a late hello of an earlier connection", h.offer.name);
    return link->close("the node has a newer connection");
  }
  if (const Node* known = engine.state().node_by_name(h.offer.name);
      known && links_.contains(known->id)) {
    const AgentLinkPtr old = links_.at(known->id);
    // Either the same machine connects again while its old connection is not known to be dead, or
    // another machine uses its name. The boot id is no secret: only the credential tells.
    const bool same = old->credential == link->credential || credential_gone(*old);
    if (known->offer.boot_id != h.offer.boot_id || !same)
      return refuse(link, fmt::format("a node named {} is already connected", h.offer.name),
                    "give this one another name with --node-name");
    old->node = {};
    links_.erase(known->id);
    old->close("connected again");
  }
  last = {link->number, link->credential};
  link->name = h.offer.name;
  arriving_[h.offer.name] = link;
  engine.execute(AgentHello{h.offer, h.tasks, link->credential}, {"node:" + h.offer.name, ""},
                 [this, link, h](Result<std::vector<Event>> events) {
                   if (const auto found = arriving_.find(h.offer.name);
                       found != arriving_.end() && found->second == link)
                     arriving_.erase(found);
                   if (!events)
                     return refuse(link, events.error().message, events.error().hint);
                   accepted(link, h);
                 });
}

// The hello's events are durable. Orders that became due meanwhile could not be delivered;
// hello_effects repeats them.
void AgentLinks::accepted(const AgentLinkPtr& link, const Hello& h) {
  Engine& engine = engine_();
  const Node* node = engine.state().node_by_name(h.offer.name);
  if (!node || !link->open() || last_hello_[h.offer.name].link != link->number)
    return;
  link->node = node->id;
  links_[node->id] = link;
  silent_since_.erase(node->id);
  for (const TaskStatus& status : h.tasks)
    take_port(node->id, status);
  unsent_.erase(node->id);  // missing starts are sent now
  auto& strangers = strangers_[node->id] = {};
  const std::vector<control::Effect> orders =
      control::hello_effects(engine.state(), node->id, h.tasks);
  for (const control::Effect& order : orders)
    if (const auto* settle = get_if<Settle>(&order.message))
      strangers.insert(settle->unknown.begin(), settle->unknown.end());
  if (strangers.empty())
    strangers_.erase(node->id);
  else
    log_warn(
        "node {} still runs {} task{} that {} been moved to other nodes; it gets no work until {} "
        "ended",
        h.offer.name, strangers.size(), strangers.size() == 1 ? "" : "s",
        strangers.size() == 1 ? "has" : "have", strangers.size() == 1 ? "it has" : "they have");
  link->send(
      Welcome{engine.state().epoch, node->id, limits::agent_heartbeat.ms(),
              std::min(h.version, wire::spoken_protocol(std::getenv("BILLOW_TEST_PROTOCOL"))),
              BILLOW_VERSION, control::node_bills(*node)},
      {});
  log_info("node {} connected: {} GPUs, {} tasks, billow {}, protocol {}", h.offer.name,
           node->offer.gpus.size(), h.tasks.size(), h.offer.version,
           std::min(h.version, wire::spoken_protocol(std::getenv("BILLOW_TEST_PROTOCOL"))));
  engine.enqueue(orders);
}

// A node may speak only for its own tasks.
void AgentLinks::take_port(NodeId node, const TaskStatus& status) {
  if (!has_task(node, status.task))
    return;
  if (status.state == TaskState::ended)
    return (void)ports_.erase(status.task);
  if (status.port_holder == PortHolder::unsaid)
    return;
  // Drop entries of tasks whose node left without reporting their end.
  if (ports_.size() > limits::endpoints_max)
    std::erase_if(ports_,
                  [&](const auto& each) { return !engine_().state().find_task(each.first); });
  Port& known = ports_[status.task];
  if (known.holder == status.port_holder && known.look == status.port_look)
    return;
  known = {status.port_holder, status.port_look};
  if (port_changed_)
    port_changed_();
}

void AgentLinks::report(const AgentLinkPtr& link, const Report& r) {
  // Reports about tasks of other nodes are ignored. Reports about tasks that ended long ago are
  // acknowledged below.
  if (has_task(link->node, r.status.task)) {
    take_port(link->node, r.status);
    const bool waits =
        r.status.state == TaskState::starting || r.status.state == TaskState::running;
    if (waits && !r.status.waits_for.empty())
      waits_for_[r.status.task] = control::kept_words(r.status.waits_for);
    else
      waits_for_.erase(r.status.task);
  } else if (!engine_().state().find_task(r.status.task)) {
    waits_for_.erase(r.status.task);
  }
  engine_().execute(
      AgentReport{link->node, r.status}, {"node:" + link->name, ""},
      [this, link, number = r.number, task = r.status.task,
       ended = r.status.state == TaskState::ended](Result<std::vector<Event>> events) {
        if (!events)
          log_warn("node {}: {}", link->name, events.error().message);
        link->send(Ack{number}, {});
        const auto strangers = strangers_.find(link->node);
        if (!ended || strangers == strangers_.end() || strangers->second.erase(task) == 0 ||
            !strangers->second.empty())
          return;
        strangers_.erase(strangers);
        link->close("the tasks of other nodes have ended; connect again");
      });
}

void AgentLinks::reclaimed(const AgentLinkPtr& link, const Reclaimed& notice) {
  log_warn("node {} is being reclaimed: {}", link->name, notice.reason);
  engine_().execute(NodeReclaimed{link->node, notice.reason.empty()
                                                  ? "taken away"
                                                  : std::string(utf8_prefix(
                                                        notice.reason, limits::words_bytes_max))},
                    {"node:" + link->name, ""}, {});
}

bool AgentLinks::credential_gone(const AgentLink& link) const {
  return link.credential && !engine_().state().tokens.contains(link.credential);
}

bool AgentLinks::revoked(const AgentLinkPtr& link) {
  if (!credential_gone(*link))
    return false;
  link->send(Refused{"this node's credential has been revoked",
                     "an admin can let it join again: billow token create --node"},
             {});
  return true;
}

// Agents send marks often, so that the last one is never old; the journal needs only some of them.
void AgentLinks::marks(const AgentLinkPtr& link, const MeterMark& m) {
  const SteadyTime now = clock_.steady();
  MeterMarks due{link->node, {}};
  for (const TaskMark& mark : m.marks) {
    const auto [at, fresh] = marked_at_.try_emplace(mark.task, now);
    if (!fresh && now - at->second < limits::meter_mark_every)
      continue;
    at->second = now;
    due.marks.push_back(mark);
  }
  if (marked_at_.size() > 100'000)
    std::erase_if(marked_at_, [&](const auto& item) {
      return now - item.second > limits::meter_mark_every * 2;
    });
  if (!due.marks.empty())
    engine_().execute(due, {"node:" + link->name, ""}, {});
}

void AgentLinks::idle_note(const AgentLinkPtr& link, const IdleNote& note) {
  engine_().execute(IdleReported{link->node, note.task, note.state, note.action, note.text},
                    {"node:" + link->name, ""}, {});
}

void AgentLinks::keep_alive(const AgentLinkPtr& link, const KeepAliveAsked& asked) {
  engine_().execute(KeepAlive{{}, asked.task, link->node, asked.lasts, asked.reason},
                    {fmt::format("task:{}", asked.task.value), ""}, {});
}

void AgentLinks::renew_leases() {
  Engine& engine = engine_();
  const control::State& state = engine.state();
  if (state.money.budgets.empty())
    return;
  const auto uses = control::budget_uses(state, engine.billed());
  for (const auto& [node, link] : links_) {
    const auto on = state.tasks_on.find(node);
    if (on == state.tasks_on.end())
      continue;
    std::map<Duration, std::vector<TaskId>> by_time;
    for (TaskId id : on->second)
      if (const Duration paid = control::task_paid_for(state, state.tasks.at(id), uses);
          paid.ns > 0)
        by_time[paid].push_back(id);
    for (auto& [paid, tasks] : by_time)
      link->send(LeaseRenew{state.epoch, std::move(tasks), paid}, {});
  }
}

bool AgentLinks::closed(const AgentLinkPtr& link) {
  if (const auto found = arriving_.find(link->name);
      found != arriving_.end() && found->second == link)
    arriving_.erase(found);
  if (!link->node)
    return false;
  const auto found = links_.find(link->node);
  if (found == links_.end() || found->second != link)
    return false;
  links_.erase(found);
  strangers_.erase(link->node);
  silent_since_[link->node] = {link->heard, clock_.steady()};
  log_info("node {} disconnected", link->name);
  return true;
}

bool AgentLinks::send(NodeId node, const ToAgent& message, std::string_view blob) {
  const auto found = links_.find(node);
  return found != links_.end() && found->second->send(message, blob);
}

void AgentLinks::deliver(const control::Effect& effect) {
  const auto* start = get_if<Start>(&effect.message);
  const auto found = links_.find(effect.node);
  if (start && found == links_.end())
    return (void)unsent_[effect.node].insert(start->task);
  if (!start || !complete_)
    return (void)send(effect.node, effect.message, {});
  Start completed = *start;
  complete_(completed, found->second->confidential());
  // A frame that is too large would cut the connection, and again after each hello.
  if (wire::text_bytes(completed) > limits::agent_frame_bytes_max / 8 &&
      wire::to_json_text(completed).size() > limits::agent_frame_bytes_max - frame_margin) {
    TaskStatus status{.task = completed.task,
                      .state = TaskState::ended,
                      .ended_at = clock_.wall(),
                      .exit = {},
                      .usage = {},
                      .never_began = true};
    status.exit.kind = ExitKind::exec_failed;
    status.exit.message =
        fmt::format("its command, variables and secrets exceed the {} that can be sent to a node",
                    format_bytes(limits::agent_frame_bytes_max - frame_margin));
    engine_().execute(AgentReport{effect.node, std::move(status)}, {"head", ""}, {});
  } else {
    found->second->send(completed, {});
  }
  for (auto& secret : completed.secrets)
    wipe(secret.value);
  wipe(completed.registry_login.value);
}

// Ends tasks without charge that no node has ever heard of. If some tasks of a gang were sent, all
// stay: those may have started.
void AgentLinks::take_back_unsent(NodeId node) {
  const auto found = unsent_.find(node);
  if (found == unsent_.end())
    return;
  const std::set<TaskId> tasks = std::move(found->second);
  unsent_.erase(found);
  for (TaskId id : tasks) {
    const Task* task = engine_().state().find_task(id);
    if (!task || task->node != node)
      continue;
    const std::vector<TaskId>& all = engine_().state().jobs.at(task->job).tasks;
    if (!std::all_of(all.begin(), all.end(), [&](TaskId each) { return tasks.contains(each); }))
      continue;
    TaskStatus status{.task = id, .state = TaskState::ended, .ended_at = WallTime{1}};
    status.exit = {.kind = ExitKind::lost,
                   .code = 0,
                   .signal = 0,
                   .message = "its node disconnected before the task could start"};
    status.never_began = true;
    engine_().execute(AgentReport{node, status}, {"head", ""}, {});
  }
}

void AgentLinks::watch_silence(const std::function<void(const AgentLinkPtr&)>& cut) {
  const SteadyTime now = clock_.steady();
  std::vector<AgentLinkPtr> quiet;
  for (const auto& [node, link] : links_)
    if (now - link->heard > limits::agent_unreachable_after || revoked(link) || !link->certified())
      quiet.push_back(link);
  for (const AgentLinkPtr& link : quiet) {
    link->close("silent");
    cut(link);
  }
  Engine& engine = engine_();
  std::vector<Command> commands;  // executed after the loop, because they change the nodes
  for (const auto& [id, node] : engine.state().nodes) {
    if (links_.contains(id) || arriving_.contains(node.offer.name))
      continue;
    const auto [since, fresh] =
        silent_since_.try_emplace(id, now, now);  // after a restart of the head, counted from then
    const Duration silent = now - since->second.heard;
    if (node.reachable && silent > limits::agent_unreachable_after)
      commands.push_back(NodeSilent{id, silent});
    else if (!node.reachable && silent > limits::agent_unreachable_after + limits::fenced_after &&
             now - since->second.cut > limits::fenced_after)
      commands.push_back(NodeFenced{id});
  }
  for (const Command& command : commands)
    engine.execute(command, {"head", ""}, {});
  std::vector<NodeId> gone;
  for (const auto& [id, tasks] : unsent_)
    if (const auto node = engine.state().nodes.find(id);
        node == engine.state().nodes.end() || (!node->second.reachable && !links_.contains(id) &&
                                               !arriving_.contains(node->second.offer.name)))
      gone.push_back(id);
  for (NodeId id : gone)
    take_back_unsent(id);
}

}  // namespace billow::head
