#include "net/http/admission.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "net/address.h"
#include "net/sockets.h"

namespace billow::net {
namespace {

constexpr Duration report_every = seconds(10);

std::string_view what_was_refused(Refused reason) {
  switch (reason) {
    case Refused::connection:
      return "connections were refused: the server is full";
    case Refused::displaced:
      return "waiting connections were dropped to make room for new ones";
    case Refused::requests:
      return "requests were refused: too many of one caller are being answered";
    case Refused::rate:
      return "requests were refused: too many a second from one caller";
    case Refused::body_bytes:
      return "requests were refused: too many body bytes are in flight";
    case Refused::body:
      return "bodies were refused before they were read";
    case Refused::slow_head:
      return "requests were cut: their header did not arrive in time";
    case Refused::slow_body:
      return "requests were cut: their body did not arrive in time";
    case Refused::unsent_bytes:
      return "connections were cut: their clients do not read the answers";
  }
  return "requests were refused";
}

}  // namespace

Peer peer_at(int fd) {
  std::optional<unsigned> uid;
  const std::string text = peer_of(fd, uid);
  if (text.starts_with("unix"))
    return {uid ? fmt::format("unix uid {}", *uid) : std::string("unix"), true};
  const std::string address = network_of_peer(text);
  if (const auto owner = sockets::loopback_peer_uid(fd))
    return {fmt::format("{} uid {}", address, *owner), false};
  return {address, false};
}

// ---- the server's side

std::shared_ptr<Admission::Party> Admission::party(const std::string& name,
                                                   CallerKind kind,
                                                   SteadyTime now) {
  // Whenever the table has doubled, parties without connections are forgotten, but not before their
  // rate of requests: who reconnects must not begin anew.
  if (parties_.size() >= parties_sweep_at_) {
    std::erase_if(parties_, [now](const auto& entry) {
      return entry.second->connections == 0 && entry.second->full_at <= now;
    });
    parties_sweep_at_ = std::max<std::size_t>(1024, parties_.size() * 2);
  }
  std::shared_ptr<Party>& known = parties_[name];
  if (known)
    return known;
  auto made = std::make_shared<Party>();
  made->name = name;
  made->kind = kind;
  made->allowance = -1;  // filled by the first request
  made->filled_at = now;
  known = made;
  return made;
}

const ShareLimits& Admission::share(const Place& place) const {
  return place.share_;
}

std::size_t Admission::room(CallerKind kind) const {
  const std::size_t all = limits_.connections_max;
  const auto less = [all](std::size_t reserve) {
    return all - std::min(all / 2, reserve);
  };
  const std::size_t unix_kept =
      std::max(count(CallerKind::local), limits_.unix_reserve) - count(CallerKind::local);
  const std::size_t nodes_kept =
      std::max(count(CallerKind::node), limits_.nodes_reserve) - count(CallerKind::node);
  switch (kind) {
    case CallerKind::local:
      return all;
    case CallerKind::node:
      return less(unix_kept);
    case CallerKind::user:
    case CallerKind::stranger:
      return less(unix_kept + nodes_kept);
  }
  return all;
}

bool Admission::drop_oldest(std::list<Place*>& waiting, SteadyTime now) {
  if (waiting.empty())
    return false;
  Place* oldest = waiting.front();
  oldest->stop_waiting();
  if (shared_)
    oldest->count(false);
  note(Refused::displaced, oldest->peer_, now);
  // It may destroy the place, and itself with it.
  const auto drop = oldest->drop_;
  if (!shared_)
    oldest->drop_ = nullptr;
  if (drop)
    drop();
  return true;
}

// Whether a connection may join the party, after others have been dropped for it if need be.
bool Admission::make_room(Party& party, CallerKind kind, const ShareLimits& share, SteadyTime now) {
  while (party.connections >= share.connections_max)
    if (!drop_oldest(party.waiting, now))
      return false;
  auto& strangers = waiting_[static_cast<std::size_t>(CallerKind::stranger)];
  auto& users = waiting_[static_cast<std::size_t>(CallerKind::user)];
  if (kind == CallerKind::stranger)
    while (count(CallerKind::stranger) >= limits_.strangers_max)
      if (!drop_oldest(strangers, now))
        return false;
  while (places_ >= room(kind))
    if (!drop_oldest(strangers, now) && !drop_oldest(users, now))
      return false;
  return true;
}

std::shared_ptr<Admission::Place> Admission::enter(const Peer& peer, SteadyTime now) {
  const auto lock = guard();
  const CallerKind kind = peer.is_unix ? CallerKind::local : CallerKind::stranger;
  const auto holder = party(peer.name, kind, now);
  const ShareLimits& share = peer.is_unix ? limits_.per_caller : limits_.per_peer;
  if (!make_room(*holder, kind, share, now)) {
    note(Refused::connection, peer.name, now);
    return nullptr;
  }
  auto place = std::make_shared<Place>(shared_from_this(), holder, peer.name);
  place->share_ = share;
  return place;
}

void Admission::note(Refused reason, const std::string& peer, SteadyTime now) {
  const auto lock = guard();
  Noted& noted = noted_[static_cast<std::size_t>(reason)];
  ++noted.total;
  ++noted.unlogged;
  noted.last_peer = peer;
  if (noted.total == 1 || now - noted.logged_at > report_every)
    log_refusals(reason, noted, now);
}

void Admission::log_refusals(Refused reason, Noted& noted, SteadyTime now) {
  log_warn("{} {} (the last one: {})", noted.unlogged, what_was_refused(reason), noted.last_peer);
  noted.unlogged = 0;
  noted.logged_at = now;
}

void Admission::report(SteadyTime now) {
  const auto lock = guard();
  for (std::size_t i = 0; i < refused_reasons; ++i)
    if (Noted& noted = noted_[i]; noted.unlogged > 0 && now - noted.logged_at > report_every)
      log_refusals(static_cast<Refused>(i), noted, now);
}

ServerFigures Admission::figures() const {
  const auto lock = guard();
  ServerFigures out;
  out.connections = counts_;
  out.body_bytes = body_bytes_;
  for (std::size_t i = 0; i < refused_reasons; ++i)
    out.refused[i] = noted_[i].total;
  return out;
}

// ---- one connection's side

Admission::Place::Place(std::shared_ptr<Admission> in,
                        std::shared_ptr<Party> party,
                        std::string peer)
    : in_(std::move(in)), party_(std::move(party)), peer_(std::move(peer)) {
  const auto lock = in_->guard();
  count(true);
}

Admission::Place::~Place() {
  const auto lock = in_->guard();
  drop_ = nullptr;
  end();
  party_->unsent_bytes -= unsent_bytes_;
  count(false);
}

void Admission::Place::count(bool here) {
  if (std::exchange(counted_, here) == here)
    return;
  const auto change = [here](std::size_t& number) {
    here ? ++number : --number;
  };
  change(in_->places_);
  change(in_->count(party_->kind));
  change(party_->connections);
}

void Admission::Place::stay() {
  const auto lock = in_->guard();
  count(true);
}

void Admission::Place::wait_with(std::function<void()> drop) {
  const auto lock = in_->guard();
  stop_waiting();
  drop_ = std::move(drop);
  wait();
}

void Admission::Place::wait() {
  if (waiting_ || !drop_)
    return;
  waiting_ = true;
  auto& of_kind = in_->waiting_[static_cast<std::size_t>(party_->kind)];
  in_party_ = party_->waiting.insert(party_->waiting.end(), this);
  in_kind_ = of_kind.insert(of_kind.end(), this);
}

void Admission::Place::stop_waiting() {
  if (!std::exchange(waiting_, false))
    return;
  party_->waiting.erase(in_party_);
  in_->waiting_[static_cast<std::size_t>(party_->kind)].erase(in_kind_);
}

void Admission::Place::detach() {
  const auto lock = in_->guard();
  stop_waiting();
  drop_ = nullptr;
}

Status Admission::Place::move_to(const Caller& caller, SteadyTime now) {
  // Who came through the Unix socket keeps its reserve, whatever token it sends.
  const bool stays = party_->kind == CallerKind::local || caller.kind == CallerKind::stranger;
  const std::string& name = stays ? peer_ : caller.name;
  const CallerKind kind = party_->kind == CallerKind::local ? CallerKind::local : caller.kind;
  share_ = kind == CallerKind::stranger ? in_->limits_.per_peer
                                        : caller.share.value_or(in_->limits_.per_caller);
  if (party_->name == name)
    return {};
  const bool waited = waiting_;
  stop_waiting();
  const auto to = in_->party(name, kind, now);
  // The place is counted where it stands, so room for one more is asked for as if it had left.
  --in_->count(party_->kind);
  --in_->places_;
  const bool room = in_->make_room(*to, kind, share_, now);
  ++in_->places_;
  ++in_->count(party_->kind);
  if (!room) {
    in_->note(Refused::connection, name, now);
    return fail(
        Code::exhausted,
        fmt::format("too many connections from {}: the limit is {}", name, share_.connections_max),
        "close some of them, or ask an admin to raise the quota: billow quota set");
  }
  --party_->connections;
  --in_->count(party_->kind);
  party_->unsent_bytes -= unsent_bytes_;
  party_ = to;
  party_->unsent_bytes += unsent_bytes_;
  ++party_->connections;
  ++in_->count(party_->kind);
  if (waited)
    wait();
  return {};
}

Status Admission::Place::begin(const Caller& caller, SteadyTime now) {
  const auto lock = in_->guard();
  BILLOW_TRY_VOID(move_to(caller, now));
  Party& party = *party_;
  if (party.requests >= share_.requests_max) {
    in_->note(Refused::requests, party.name, now);
    return fail(Code::exhausted,
                fmt::format("{} requests of {} are being answered: the limit is {}", party.requests,
                            party.name, share_.requests_max),
                "try again in a moment");
  }
  const double most = share_.requests_burst;
  if (party.allowance < 0)
    party.allowance = most;
  party.allowance =
      std::min(most, party.allowance + (now - party.filled_at).seconds() * share_.requests_per_s);
  party.filled_at = now;
  // A Unix socket belongs to the operator, and nodes report at their own pace.
  const bool counted = party.kind == CallerKind::user || party.kind == CallerKind::stranger;
  if (counted && party.allowance < 1) {
    in_->note(Refused::rate, party.name, now);
    return fail(Code::exhausted,
                fmt::format("too many requests from {}: the limit is {} a second", party.name,
                            share_.requests_per_s),
                "send fewer, or ask an admin to raise the quota: billow quota set");
  }
  if (counted) {
    party.allowance -= 1;
    party.full_at =
        now + milliseconds(static_cast<std::int64_t>((most - party.allowance) * 1000 /
                                                     std::max(share_.requests_per_s, 0.001)));
  }
  requesting_ = true;
  ++party.requests;
  return {};
}

void Admission::Place::engage() {
  const auto lock = in_->guard();
  stop_waiting();
}

Status Admission::Place::add_body(std::uint64_t bytes, SteadyTime now) {
  const auto lock = in_->guard();
  const bool of_all = in_->body_bytes_ + bytes > in_->limits_.body_bytes_max;
  if (of_all || party_->body_bytes + bytes > share_.body_bytes_max) {
    in_->note(Refused::body_bytes, party_->name, now);
    return fail(of_all ? Code::unavailable : Code::exhausted,
                of_all ? std::string("the server is receiving too much at once")
                       : fmt::format("{} sends too much at once: the limit is {} bytes",
                                     party_->name, share_.body_bytes_max),
                "try again in a moment");
  }
  body_bytes_ += bytes;
  party_->body_bytes += bytes;
  in_->body_bytes_ += bytes;
  return {};
}

bool Admission::Place::set_unsent(std::uint64_t bytes, SteadyTime now) {
  const auto lock = in_->guard();
  const bool more = bytes > unsent_bytes_;
  party_->unsent_bytes += bytes - unsent_bytes_;
  unsent_bytes_ = bytes;
  if (!more || party_->unsent_bytes <= share_.unsent_bytes_max)
    return true;
  in_->note(Refused::unsent_bytes, party_->name, now);
  return false;
}

void Admission::Place::end() {
  const auto lock = in_->guard();
  party_->body_bytes -= body_bytes_;
  in_->body_bytes_ -= body_bytes_;
  body_bytes_ = 0;
  if (std::exchange(requesting_, false))
    --party_->requests;
  stop_waiting();
  wait();
}

}  // namespace billow::net
