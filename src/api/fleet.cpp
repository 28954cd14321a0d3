// The routes of joining machines, of pools, and of the machines that pools created.
#include <fmt/format.h>

#include <cstdlib>

#include "api/call.h"
#include "base/text.h"
#include "core/control/decide/decide.h"
#include "core/control/renting/twins.h"
#include "core/wire/codec.h"
#include "core/wire/spoken.h"
#include "pool/kinds.h"
#include "pool/rest/providers.h"

namespace billow::api::fleet {
namespace {

struct JoinBody {
  std::string name, version, key;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("name", s.name);
    v("version", s.version);
    v("key", s.key);
  }
};

// A new pool, and the API key of its provider in clear: it is sealed before anything is journaled.
struct NewPool : Pool {
  using FieldsBase = Pool;
  std::string credential;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    Pool::fields(s, v);
    v("credential", s.credential);
  }
};

Json offer_document(const MachineOffer& offer) {
  return Json::object(
      {{"instance", offer.instance},
       {"region", offer.region},
       {"zone", offer.zone},
       {"spot", offer.spot},
       {"gpu_type", offer.gpu_type},
       {"gpus", offer.gpus},
       {"cpus", offer.cpus},
       {"memory_mib", offer.memory_mib},
       {"price_usd_per_h", static_cast<double>(offer.price.nano_usd_per_s) * 3600 / 1e9},
       {"price_h_nano_usd",
        offer.price_h.value > 0 ? offer.price_h.value : offer.price.nano_usd_per_s * 3600},
       {"bill_minimum_s", offer.bill_minimum.ns / 1'000'000'000},
       {"bill_step_s", offer.bill_step.ns / 1'000'000'000},
       {"fabric", offer.fabric},
       {"priced_at", offer.priced_at ? Json(format_utc(offer.priced_at)) : Json()},
       {"reservation", offer.reservation}});
}

Json refusal_document(const OfferRefusal& refusal) {
  return Json::object({{"offer", offer_document(refusal.offer)},
                       {"kind", enum_name(refusal.kind)},
                       {"reason", refusal.reason},
                       {"at", format_utc(refusal.at)},
                       {"until", format_utc(refusal.until)}});
}

const Pool* find_pool(const control::State& state, const std::string& name) {
  for (const auto& [id, pool] : state.pools)
    if (pool.name == name)
      return &pool;
  return nullptr;
}

Json machine_document(const Host& host, const Machine& machine) {
  const auto time = [](WallTime t) {
    return t ? Json(format_utc(t)) : Json();
  };
  const std::string silent = control::silent_note(host.state(), machine);
  const std::string ending = host.machine_ending(machine);
  return Json::object(
      {{"name", machine.name},
       {"state", enum_name(machine.state)},
       {"nodes", machine.nodes},
       {"gpus", machine.gpus},
       {"wanted_at", time(machine.wanted_at)},
       {"here_at", time(machine.here_at)},
       {"idle_since", time(machine.idle_since)},
       {"ends_at", time(machine.ends_at)},
       {"external", machine.external},
       {"note", silent.empty() ? machine.note : "its agent does not answer: " + silent},
       {"reason", machine.reason + (ending.empty() ? "" : "; " + ending)},
       {"cache", machine.cache.empty() ? Json() : Json(machine.cache)},
       {"disk_gib", machine.is_disk() ? Json(machine.volume_gib) : Json()},
       {"offer", machine.offer ? offer_document(*machine.offer) : Json()}});
}

Json pool_document(const Host& host, const Pool& pool, bool admin) {
  const control::State& state = host.state();
  const WallTime now = host.now();
  const std::string trouble = host.provider_trouble(pool.id);
  Json machines = Json::array();
  for (const auto& [name, machine] : state.machines)
    if (machine.pool == pool.id)
      machines.push(machine_document(host, machine));
  Json doc = Json::object(
      {{"name", pool.name},
       {"kind", pool.kind},
       {"min", pool.machines_min},
       {"max", pool.machines_max},
       {"idle_s", pool.idle.ns / 1'000'000'000},
       {"patience_s", pool.patience.ns / 1'000'000'000},
       {"order", pool.order},
       {"gpu_type", pool.gpu_type},
       {"gpus", pool.gpus},
       {"price_usd_per_h", static_cast<double>(pool.price.nano_usd_per_s) * 3600 / 1e9},
       {"spot", pool.spot}});
  const bool removing = pool.state == PoolState::removing;
  doc.set("removing", removing);
  doc.set("denied", !trouble.empty()          ? Json("its machines cannot be listed: " + trouble)
                    : removing                ? Json()
                    : !pool.stopped.empty()   ? Json("stopped: " + pool.stopped)
                    : pool.denied_until > now ? Json(pool.denied)
                                              : Json());
  if (!pool.partition.empty())
    doc.set("partition", pool.partition);
  // Commands and options may name accounts, so only admins see them.
  if (admin && !pool.create_command.empty())
    doc.set("commands", Json::object({{"create", pool.create_command},
                                      {"list", pool.list_command},
                                      {"delete", pool.delete_command}}));
  if (const std::string place = host.provider_place(pool.id); admin && !place.empty())
    doc.set("place", place);
  if (admin && !pool.options.empty()) {
    Json options = Json::object();
    for (const auto& [name, value] : pool.options)
      options.set(name, value);
    doc.set("options", std::move(options));
  }
  if (pool.capabilities && pool.capabilities->from_offers)
    doc.set("offers", pool.offers.size());
  const auto cloud = pool.labels.find("cloud");
  doc.set("cloud", cloud == pool.labels.end() ? Json() : Json(cloud->second));
  doc.set("machines", std::move(machines));
  return doc;
}

}  // namespace

void join(CallPtr call) {
  auto body = read_body<JoinBody>(call);
  if (!body)
    return;
  if (body->key.empty())
    return call->fail({Code::invalid, "this machine's version of billow is too old to join",
                       "install the head's version of billow on it"});
  const std::string authority = call->host.authority();
  call->execute(JoinNode{call->principal.token, body->name, body->key}, 201,
                [name = body->name, authority](const std::vector<Event>&) {
                  return Json::object(
                      {{"node", name},
                       {"authority", authority},
                       {"protocol", wire::spoken_protocol(std::getenv("BILLOW_TEST_PROTOCOL"))}});
                });
}

void pools(CallPtr call) {
  const bool admin = call->may(Permission::pools_change);
  Json list = Json::array();
  for (const auto& [id, pool] : call->host.state().pools)
    if (!control::is_only_watched(call->host.state(), pool))
      list.push(pool_document(call->host, pool, admin));
  call->reply_durable(200, Json::object({{"pools", std::move(list)}}));
}

void add_pool(CallPtr call) {
  auto pool = read_body<NewPool>(call);
  if (!pool)
    return;
  const Json given = call->body().value_or(Json::object());
  if (pool->id)
    return call->fail(
        {Code::invalid, "the number of a pool must not be given; the head assigns it", ""});
  if (const Status ok = pool::complete_new_pool(*pool); !ok)
    return call->fail(ok.error());
  // They use the head's rights, which may be root's.
  if (const auto& user = call->host.state().users.at(call->principal.user);
      !user.starts_heads && pool::uses_heads_rights(*pool))
    return call->fail({Code::forbidden,
                       "this pool's commands or options use the head's rights; only the user who "
                       "started the head may add them",
                       "ask that user, or add the pool on the head's machine"});
  // Together with the idle rules, a forgotten machine is gone within half an hour, unless its pool
  // says otherwise.
  if (given["idle_ns"].is_null())
    pool->idle = limits::node_give_back_after;
  if (call->request().has_param("dry-run"))
    return call->reply(200, Json::object({{"ok", true}}));
  pool->sealed_credential.clear();
  if (!pool->credential.empty()) {
    auto sealed =
        call->host.seal_secret(ProjectId{}, pool_secret_name(pool->name), pool->credential);
    if (!sealed)
      return call->fail(sealed.error());
    pool->sealed_credential = std::move(*sealed);
  }
  call->execute(AddPool{static_cast<Pool&&>(*pool)}, 201, [](const std::vector<Event>&) {
    return Json::object({{"ok", true}});
  });
}

void remove_pool(CallPtr call) {
  std::size_t machines = 0;
  if (const Pool* pool = find_pool(call->host.state(), call->parts[0]))
    for (const auto& [name, machine] : call->host.state().machines)
      machines += machine.pool == pool->id;
  call->execute(RemovePool{call->parts[0]}, 200, [machines](const std::vector<Event>& events) {
    const bool watched = events.empty() || !holds_alternative<PoolRemoved>(events.back().body);
    return Json::object(
        {{"ok", true}, {"gone", machines == 0}, {"machines", machines}, {"watched", watched}});
  });
}

void offers(CallPtr call) {
  const Pool* pool = find_pool(call->host.state(), call->parts[0]);
  if (!pool)
    return call->fail({Code::not_found, fmt::format("there is no pool \"{}\"", call->parts[0]),
                       "see `billow pool list`"});
  Json list = Json::array(), refusals = Json::array();
  for (const MachineOffer& offer : pool->offers)
    list.push(offer_document(offer));
  for (const OfferRefusal& refusal : pool->refusals)
    refusals.push(refusal_document(refusal));
  call->reply_durable(
      200, Json::object({{"offers", std::move(list)}, {"refusals", std::move(refusals)}}));
}

namespace {

void ask(CallPtr call, pool::Question question) {
  call->host.ask_provider(call->parts[0], question, [call](Result<Json> answer) {
    if (!answer)
      return call->fail(answer.error());
    call->reply(200, *answer);
  });
}

// Sends the archive piece by piece: many machines may fetch it at once, and it is not small.
class ProgramSender : public std::enable_shared_from_this<ProgramSender> {
 public:
  ProgramSender(CallPtr call, std::shared_ptr<const pool::Program> program)
      : call_(std::move(call)), program_(std::move(program)) {}
  void begin() {
    call_->exchange->start_stream(200, {{"Content-Type", "application/x-tar"},
                                        {"Content-Length", std::to_string(archive().size())}});
    call_->exchange->on_drain([self = shared_from_this()] { self->go_on(); });
    go_on();
  }

 private:
  static constexpr std::size_t piece = 256 << 10;
  std::string_view archive() const { return program_->archive; }
  void go_on() {
    while (sent_ < archive().size()) {
      if (!call_->exchange->write(archive().substr(sent_, piece)))
        return;
      sent_ += piece;
      if (call_->exchange->buffered() > piece)
        return;
    }
    if (!std::exchange(done_, true))
      call_->exchange->finish();
  }
  CallPtr call_;
  std::shared_ptr<const pool::Program> program_;
  std::size_t sent_ = 0;
  bool done_ = false;
};

}  // namespace

void check_pool(CallPtr call) {
  // A user who checks has usually just changed something, so the provider is asked again at once.
  call->host.execute(RetryPool{call->parts[0]}, {"user:" + call->principal.name, ""},
                     [call](Result<std::vector<Event>> retried) {
                       if (!retried)
                         return call->fail(retried.error());
                       ask(call, pool::Question::account);
                     });
}

void retry_pool(CallPtr call) {
  call->execute(RetryPool{call->parts[0]}, 200, [](const std::vector<Event>&) {
    return Json::object({{"ok", true}});
  });
}

// The provider files that this head knows, and what is wrong with them.
void providers(CallPtr call) {
  Json list = Json::array();
  for (const pool::rest::ProviderFile& file : pool::rest::provider_files())
    list.push(Json::object({{"name", file.name},
                            {"title", file.title},
                            {"credentials", file.credentials},
                            {"boot", file.boot},
                            {"bill_step_s", file.bill_step.ns / 1'000'000'000},
                            {"bill_minimum_s", file.bill_minimum.ns / 1'000'000'000},
                            {"error", file.error}}));
  call->reply(200, Json::object({{"providers", std::move(list)}}));
}

void refresh_offers(CallPtr call) {
  ask(call, pool::Question::offers);
}

void strays(CallPtr call) {
  ask(call, pool::Question::strays);
}

void end_strays(CallPtr call) {
  ask(call, pool::Question::end_strays);
}

void program(CallPtr call) {
  auto packed = call->host.program();
  if (!packed)
    return call->fail({Code::unavailable, "this head cannot read its own program files",
                       "install billow on the machine, then run `billow join`"});
  std::make_shared<ProgramSender>(call, std::move(packed))->begin();
}

void release_machine(CallPtr call) {
  call->execute(ReleaseMachine{call->parts[0], "released by " + call->principal.name}, 200,
                [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

}  // namespace billow::api::fleet
