#include "endpoints.h"

#include "head.h"

namespace billow::sim {

EndpointClients::EndpointClients(World& world)
    : world_(world), rng_(world.seed() ^ 0x656e6470u), taking_part_(rng_.chance(0.3)) {}

void EndpointClients::command(const Command& command) {
  if (SimHead* head = world_.head())
    head->execute(command, {});
}

void EndpointClients::call(const std::string& endpoint, const control::State& state) {
  std::vector<std::string> waiting;
  for (const auto& [id, call] : state.calls)
    if (call.state == CallState::waiting)
      waiting.push_back(id);
  if (!waiting.empty() && rng_.chance(0.5)) {
    AsyncCall end;
    end.id = waiting[rng_.below(waiting.size())];
    end.state = rng_.chance(0.7)   ? CallState::done
                : rng_.chance(0.5) ? CallState::failed
                                   : CallState::cancelled;
    end.status = 200;
    return command(EndCall{end});
  }
  AsyncCall call;
  call.id = fmt::format("call-{}", ++last_call_);
  call.endpoint = endpoint;
  call.method = "POST";
  call.target = "/";
  if (rng_.chance(0.5))
    call.idempotency_key = fmt::format("key-{}", rng_.below(6));
  world_.head()->execute(AcceptCall{call}, [this, id = call.id](Result<std::vector<Event>> events) {
    if (events && !events->empty())
      told_.insert(id);
  });
}

void EndpointClients::every_second() {
  SimHead* head = world_.head();
  if (!head || !taking_part_)
    return;
  const control::State& state = head->engine->state();
  if (world_.calm) {
    std::vector<std::string> names;
    for (const auto& [name, endpoint] : state.endpoints)
      names.push_back(name);
    for (const auto& name : names)
      command(DeleteEndpoint{name});
    return;
  }
  const std::string name = fmt::format("e{}", rng_.below(3));
  const auto found = state.endpoints.find(name);
  if (found == state.endpoints.end()) {
    if (!rng_.chance(0.2))
      return;
    DeployEndpoint deploy{.name = name, .user = UserId(1)};
    // Most serve until they are told to end; some end by themselves, which is a failure of their
    // revision or a replica to replace.
    deploy.spec.argv = {"sim",
                        rng_.chance(0.7) ? "-1" : fmt::format("{}", rng_.between(1, 4000)),
                        fmt::format("{}", rng_.between(1, 99)),
                        "0",
                        rng_.chance(0.2) ? "-1" : "0",
                        fmt::format("{}", rng_.between(0, 1500))};
    deploy.spec.resources.gpus = 1;
    deploy.spec.resources.share.milli = rng_.chance(0.5) ? 250 : whole_gpu_milli;
    deploy.policy.max = static_cast<std::uint32_t>(rng_.between(1, 3));
    if (rng_.chance(0.3))
      deploy.env = {{"SEED", fmt::format("{}", rng_.below(3))}};
    return command(deploy);
  }
  const Endpoint& e = found->second;
  const double what = rng_.unit();
  if (what < 0.3)
    command(StartReplica{name, e.serving != 0 && rng_.chance(0.7) ? e.serving : e.rolling,
                         static_cast<std::uint16_t>(20'000 + rng_.below(1000)), rng_.chance(0.3)});
  else if (what < 0.45)
    command(JudgeRevision{name, e.rolling, rng_.chance(0.7), "as drawn"});
  else if (what < 0.75)
    call(name, state);
  else if (what < 0.8)
    command(ScaleEndpoint{name, {}, static_cast<std::uint32_t>(rng_.between(1, 4)), {}});
  else if (what < 0.85)
    command(RollbackEndpoint{name, 0});
  else if (what < 0.87)
    command(DeleteEndpoint{name});
  else if (const auto replicas = state.replicas.find(name); replicas != state.replicas.end()) {
    auto at = replicas->second.begin();
    std::advance(at, static_cast<std::ptrdiff_t>(rng_.below(replicas->second.size())));
    if (rng_.chance(0.4))
      command(SuspendJob{.job = *at, .mode = SuspendMode::warm});
    else if (rng_.chance(0.6))
      command(ResumeJob{*at});
    else
      command(StopJob{*at, "not needed any more", false});
  }
}

void EndpointClients::saw(const Event& event) {
  if (const auto* e = get_if<CallAccepted>(&event.body)) {
    if (!accepted_.insert(e->call.id).second)
      broken("a call was accepted twice: " + e->call.id);
    if (e->call.idempotency_key.empty())
      return;
    if (!by_key_.try_emplace({e->call.endpoint, e->call.idempotency_key}, e->call.id).second)
      broken("one key became two calls: " + e->call.idempotency_key);
  } else if (const auto* e = get_if<CallEnded>(&event.body)) {
    if (!accepted_.contains(e->id))
      broken("a call ended that nobody accepted: " + e->id);
    if (!ended_.insert(e->id).second)
      broken("a call ended twice: " + e->id);
  } else if (const auto* e = get_if<CallsForgotten>(&event.body)) {
    for (const auto& id : e->ids) {
      if (!ended_.contains(id))
        broken("a call was forgotten before it ended: " + id);
      std::erase_if(by_key_, [&](const auto& each) { return each.second == id; });
    }
  }
}

bool EndpointClients::all_done() const {
  const SimHead* head = world_.head();
  return head && head->engine->state().endpoints.empty();
}

void EndpointClients::finish() const {
  for (const auto& id : told_) {
    if (!accepted_.contains(id))
      broken("a client was told of a call that is in no journal: " + id);
    if (!ended_.contains(id))
      broken("a call never ended: " + id);
  }
}

}  // namespace billow::sim
