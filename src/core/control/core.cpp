#include "core/control/core.h"

#include <fmt/format.h>
#include <algorithm>
#include <deque>

#include "core/control/money.h"
#include "core/control/outlive.h"
#include "core/wire/codec.h"
#include "core/wire/text_fields.h"
#include "core/wire/text_reader.h"

namespace billow::control {

void Core::forget_finished() {
  state_.finished_jobs.clear();
  state_.finished_arrays.clear();
  state_.money.posted.clear();
}

Context Core::context_at(WallTime now, WallTime billed) const {
  return {std::max(state_.at, now), std::max(state_.billed, billed ? billed : now), &prices_};
}

namespace {

// The node's part of a lease's row. Read while the node still exists.
void name_node(const State& state, ClosedLease& lease) {
  const auto node = state.nodes.find(lease.task.node);
  if (node == state.nodes.end())
    return;
  const NodeOffer& offer = node->second.offer;
  lease.node_name = offer.name;
  if (lease.task.gpus.empty())
    return;
  if (const auto index = static_cast<std::size_t>(lease.task.gpus.front().gpu);
      index < offer.gpus.size()) {
    lease.gpu_type = offer.gpus[index].type;
    lease.card_mem_mib = offer.gpus[index].mem_mib;
  }
}

// The sums of a lease as its row shows them.
ClosedLease lease_sums(const State& state, const Task& task, WallTime to, bool open) {
  const Job& job = state.jobs.at(task.job);
  const auto sums = state.money.books.lease_totals(ledger::lease_id(task), task.lease_from, to);
  ClosedLease out{.task = task,
                  .project = job.project,
                  .user = job.user,
                  .charge = sums.charge,
                  .cost = sums.active + sums.idle,
                  .idle = sums.idle,
                  .energy_mj = sums.energy_mj,
                  .to = to,
                  .open = open,
                  .egress = sums.egress,
                  .egress_bytes = sums.egress_bytes};
  name_node(state, out);
  return out;
}

NodeDay node_day(const State& state, const Node& node, std::int64_t day) {
  return {node.id, day, {}, node.offer.name, pool_of(state, node), provider_id(state, node)};
}

// Of the account that pays for a machine while its nodes are not here.
NodeDay account_day(const State& state, const Machine& machine, std::int64_t day) {
  const auto pool = state.pools.find(machine.pool);
  return {machine.account,
          day,
          {},
          machine.name,
          pool == state.pools.end() ? std::string() : pool->second.name,
          machine.external};
}

// What a closed day writes to the store: the postings, every open lease up to midnight, every
// node's cost.
void post_day(const State& state, const DayClosed& closed, Step& step) {
  const WallTime from{closed.day * day_ns}, midnight{(closed.day + 1) * day_ns};
  for (const auto& [id, task] : state.tasks)
    if (task.state != TaskState::ended && task.lease_from < midnight)
      step.leases.push_back(lease_sums(state, task, midnight, true));
  for (const auto& [id, node] : state.nodes)
    if (const NanoUsd cost = state.money.books.fleet_between(id, from, midnight); cost.value != 0) {
      step.node_days.push_back(node_day(state, node, closed.day));
      step.node_days.back().cost = cost;
    }
  for (const auto& [name, machine] : state.machines)
    if (const NanoUsd cost = state.money.books.fleet_between(machine.account, from, midnight);
        cost.value != 0) {
      step.node_days.push_back(account_day(state, machine, closed.day));
      step.node_days.back().cost = cost;
    }
  // Traffic reported late belongs to days that are already written: the difference goes to the day
  // being closed.
  std::map<NodeId, NanoUsd> late;
  for (const ledger::Entry& entry : state.money.posted)
    if (entry.correction && entry.kind != ledger::EntryKind::charge &&
        entry.kind != ledger::EntryKind::egress)
      late[entry.node] += entry.amount;
  for (const auto& [id, amount] : late) {
    if (amount.value == 0)
      continue;
    const auto node = state.nodes.find(id);
    step.node_days.push_back(
        node == state.nodes.end()
            ? NodeDay{id, closed.day, {}, fmt::format("node {}", id.value), "", ""}
            : node_day(state, node->second, closed.day));
    step.node_days.back().cost = amount;
  }
}

}  // namespace

namespace {

// Rows of the query tables that an event closes. Some of them need the state before the event.
class ClosingRows {
 public:
  ClosingRows(const State& before, const Event& event) {
    // A suspend or a resume closes a lease, and the task continues with the next one: the row is
    // about the task as it was.
    visit(
        [&](const auto& body) {
          if constexpr (requires {
                          body.task;
                          body.lease_to;
                          body.cost;
                          body.rate;
                        }) {
            task_ = before.tasks.at(body.task);
            task_->lease_to = body.lease_to;
          }
        },
        event.body);
    // A removed node has cost something today, but no longer exists when the day is closed; so has
    // a machine that was given back.
    if (const auto* removed = get_if<NodeRemoved>(&event.body))
      node_ = node_day(before, before.nodes.at(removed->node), before.money.days_closed);
    if (const auto* gone = get_if<MachineGone>(&event.body); gone && gone->account)
      if (const auto machine = before.machines.find(gone->machine);
          machine != before.machines.end())
        node_ = account_day(before, machine->second, before.money.days_closed);
  }

  void add(const State& after, const Event& event, Step& step) {
    if (node_) {
      node_->cost =
          after.money.books.fleet_between(node_->node, {node_->day * day_ns}, event.billed_at());
      if (node_->cost.value != 0)
        step.node_days.push_back(std::move(*node_));
    }
    if (task_)
      step.leases.push_back(lease_sums(after, *task_, task_->lease_to, false));
    if (const auto* ended = get_if<TaskEnded>(&event.body))
      step.leases.push_back(lease_sums(after, after.tasks.at(ended->task), ended->lease_to, false));
    if (const auto* closed = get_if<DayClosed>(&event.body))
      post_day(after, *closed, step);
    if (const auto* ended = get_if<ReservationEnded>(&event.body))
      add_unused(after, *ended, step);
  }

 private:
  // The use by a reservation's jobs is in their own rows.
  static void add_unused(const State& after, const ReservationEnded& r, Step& step) {
    if (!r.lease.id || (r.unused.value <= 0 && r.unused_milli <= 0))
      return;
    ClosedLease row{.task = r.lease, .project = r.project, .user = r.user, .charge = r.unused};
    row.to = r.lease.lease_to;
    row.milli = r.unused_milli;
    name_node(after, row);
    step.leases.push_back(std::move(row));
  }

  std::optional<Task> task_;
  std::optional<NodeDay> node_;
};

template <class T>
void move_all(std::vector<T>& from, std::vector<T>& to) {
  std::move(from.begin(), from.end(), std::back_inserter(to));
}

}  // namespace

void Core::follow(std::vector<EventBody> bodies,
                  const Cause& cause,
                  const Context& context,
                  Step& step) {
  // Depth first: an event's consequences come before the next event of the decision, so each is
  // decided against a state in which everything before it has been followed through.
  std::deque<EventBody> pending(std::make_move_iterator(bodies.begin()),
                                std::make_move_iterator(bodies.end()));
  while (!pending.empty()) {
    Event event{.seq = state_.seq + 1,
                .at = context.now,
                .billed = context.billed == context.now ? WallTime{} : context.billed,
                .actor = cause.actor,
                .request_id = cause.request_id,
                .token = cause.token,
                .from = cause.from,
                .body = std::move(pending.front())};
    pending.pop_front();
    // Replay will read exactly what is applied here.
    visit([](auto& body) { wire::repair_texts(body); }, event.body);
    ClosingRows rows(state_, event);
    apply(state_, event);
    for (Effect& effect : effects_of(state_, event))
      step.effects.push_back(std::move(effect));
    rows.add(state_, event, step);
    move_all(state_.money.posted, step.entries);
    std::vector<EventBody> more = react(state_, event.body, context);
    pending.insert(pending.begin(), std::make_move_iterator(more.begin()),
                   std::make_move_iterator(more.end()));
    step.events.push_back(std::move(event));
    move_all(state_.finished_jobs, step.jobs);
    move_all(state_.finished_arrays, step.arrays);
    forget_finished();
  }
}

Result<Step> Core::execute(const Command& command,
                           const Cause& cause,
                           WallTime now,
                           WallTime billed) {
  const Context context = context_at(now, billed);
  auto bodies = BILLOW_TRY(decide(state_, command, context));
  Step step;
  follow(std::move(bodies), cause, context, step);
  return step;
}

Step Core::catch_up(WallTime now, WallTime billed) {
  static const Cause cause{"head", ""};
  const Context context = context_at(now, billed);
  Step step;
  // In order of time: the consequences of a reservation's end belong to the day on which it ended,
  // never to a closed day.
  while (!state_.reservation_ends.empty() &&
         state_.reservation_ends.begin()->first <= context.now.ns) {
    const WallTime end{state_.reservation_ends.begin()->first};
    Context then = context;
    then.billed = std::min(context.billed, end - (context.now - context.billed));
    follow(days_due(state_, then), cause, context, step);
    follow(reservations_over(state_, end, context), cause, context, step);
  }
  follow(days_due(state_, context), cause, context, step);
  return step;
}

namespace {

// Whether the plan gave a place to a job that does not take it and leaves the queue.
bool leaves_its_place(const EventBody& body) {
  return holds_alternative<JobHeld>(body) || holds_alternative<JobEnded>(body);
}

}  // namespace

Step Core::plan(WallTime now, WallTime billed) {
  static const Cause cause{"head", ""};
  const Context context = context_at(now, billed);
  const sched::Plan plan = sched::plan(state_.index, context.now);
  wake_at_ = plan.wake_at;
  std::vector<EventBody> bodies = carry_out(state_, plan, context);
  // Those behind it are looked at now: nothing else may happen for hours. This comes to an end,
  // because each of these jobs has left the queue.
  more_ = plan.more || std::ranges::any_of(bodies, leaves_its_place);
  Step step;
  follow(std::move(bodies), cause, context, step);
  return step;
}

std::string encode_event(const Event& event) {
  std::string out = "{";
  bool first = true;
  const auto text = [&](const char* name, const std::string& value) {
    if (value.empty())
      return;
    out += first ? "\"" : ",\"";
    first = false;
    out += name;
    out += "\":";
    append_json_string(out, value);
  };
  text("actor", event.actor);
  text("request", event.request_id);
  text("from", event.from);
  if (event.token) {
    out += first ? "\"token\":" : ",\"token\":";
    first = false;
    out += std::to_string(event.token.value);
  }
  if (event.billed && event.billed != event.at) {
    out += first ? "\"billed_ns\":" : ",\"billed_ns\":";
    first = false;
    out += std::to_string(event.billed.ns);
  }
  out += first ? "\"event\":" : ",\"event\":";
  visit([&](const auto& body) { wire::JsonWriter::write(out, body, wire::Omit::zeros); },
        event.body);
  out += '}';
  return out;
}

namespace {

// An event as encode_event writes it; false: in another form.
bool read_event(std::string_view kind, std::string_view payload, Event& event) {
  const auto* body = wire::VariantTextReader<EventBody>::find(kind);
  if (!body)
    return false;
  wire::TextReader reader(payload);
  wire::TextMembers members(reader);
  members("actor", event.actor);
  members("request", event.request_id);
  members("from", event.from);
  members("token", event.token);
  members("billed_ns", event.billed);
  if (!members.next_is("event"))
    return false;
  event.body = body->make();
  body->read(reader, event.body);
  members.passed();
  members.finish();
  return reader.complete();
}

}  // namespace

Result<Event> decode_event(Seq seq, WallTime at, std::string_view kind, std::string_view payload) {
  if (Event event{.seq = seq, .at = at}; read_event(kind, payload, event))
    return event;
  const std::string which = fmt::format("journal record {} ({})", seq, kind);
  auto read = parse_json(payload);
  // Written before texts were checked.
  if (!read && !valid_utf8(payload))
    read = parse_json(repaired_utf8(payload));
  if (!read)
    return pass(read.error(), which);
  const Json json = std::move(*read);
  auto body = wire::variant_from_json<EventBody>(kind, json["event"]);
  if (!body)
    return pass(body.error(), which);
  return Event{.seq = seq,
               .at = at,
               .billed = {json["billed_ns"].int_or(0)},
               .actor = std::string(json["actor"].str_or("")),
               .request_id = std::string(json["request"].str_or("")),
               .token = TokenId{json["token"].uint_or(0)},
               .from = std::string(json["from"].str_or("")),
               .body = std::move(*body)};
}

}  // namespace billow::control
