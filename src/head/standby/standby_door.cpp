#include "head/standby/standby_door.h"

#include <signal.h>

#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "head/tls.h"
#include "net/http/admission.h"
#include "net/sockets.h"
#include "net/stream.h"

namespace billow::head {
namespace {

constexpr Duration connect_timeout = seconds(5), sweep_every = seconds(1),
                   accept_pause = milliseconds(100);
constexpr std::size_t queued_max = 1 << 20;

bool is_of_this_machine(const std::string& address) {
  const auto parsed = net::parse_address(address);
  const auto own = own_addresses();
  return !parsed || parsed->is_loopback() || std::ranges::find(own, parsed->host) != own.end();
}

}  // namespace

std::string LeaderPlace::text() const {
  return identity + "\n" + api + "\n" + gateway + "\n";
}

LeaderPlace LeaderPlace::parse(const std::string& text) {
  auto lines = split(text, '\n');
  lines.resize(3);
  return {std::string(lines[0]), std::string(lines[1]), std::string(lines[2])};
}

// One connection: its client here and the leader there.
struct StandbyDoor::Passage : std::enable_shared_from_this<Passage> {
  struct End final : net::StreamOwner {
    Passage* passage = nullptr;
    End* other = nullptr;
    std::shared_ptr<net::Stream> stream;
    bool ended = false;

    void stream_data(std::string_view data) override {
      other->stream->send(std::string(data));
      if (other->stream->queued() > queued_max)
        stream->pause_reading();
    }
    // A client that sends no more may still read. When the leader has ended, there is nothing
    // left to read, and a client that stays would keep its place forever.
    void stream_eof() override {
      ended = true;
      const bool both = other->ended || this == &passage->leader;
      other->stream->end_after_flush(both);
      if (both)
        stream->end_after_flush(true);
    }
    void stream_failed(std::string) override { passage->close(); }
    void stream_drained() override { other->stream->resume_reading(); }
  };

  Passage(net::Loop& l, std::string from, Fd client_end, Fd leader_end)
      : loop(l),
        peer(std::move(from)),
        waiting(std::move(client_end)),
        connecting(std::move(leader_end)) {}

  void start() {
    writable = loop.on_writable(connecting.get(), [this] { connected(); });
    patience = loop.after(connect_timeout, [this] { close(); });
  }
  void connected() {
    const auto keep = shared_from_this();
    writable.cancel();
    patience.cancel();
    if (net::connect_error(connecting.get()) != 0)
      return close();
    client.passage = leader.passage = this;
    client.other = &leader;
    leader.other = &client;
    client.stream =
        std::make_shared<net::Stream>(loop, net::Transport(std::move(waiting)), &client);
    leader.stream =
        std::make_shared<net::Stream>(loop, net::Transport(std::move(connecting)), &leader);
    client.stream->start();
    leader.stream->start();
  }
  void close() {
    writable.cancel();
    patience.cancel();
    waiting.reset();
    connecting.reset();
    for (const auto& stream : {client.stream, leader.stream})
      if (stream)
        stream->close();
  }
  bool is_over() const {
    if (!client.stream)
      return !connecting;
    return !client.stream->open() && !leader.stream->open();
  }

  net::Loop& loop;
  const std::string peer;
  Fd waiting, connecting;  // before the streams
  net::Watch writable;
  net::Timer patience;
  End client, leader;
};

StandbyDoor::StandbyDoor(Options options) : options_(std::move(options)) {
  listen(options_.api, false);
  listen(options_.gateway, true);
  signals_ = loop_.on_signal({SIGINT, SIGTERM}, [this](int) { told_to_end_ = true; });
  sweep_ = loop_.every(sweep_every, [this] {
    std::erase_if(passages_, [](const auto& one) { return one->is_over(); });
  });
  thread_ = std::thread([this] { loop_.run(); });
}

StandbyDoor::~StandbyDoor() {
  loop_.stop();
  thread_.join();
  for (const auto& passage : passages_)
    passage->close();
  passages_.clear();
  doors_.clear();
  sweep_.cancel();
  signals_.cancel();
}

void StandbyDoor::listen(const std::vector<std::string>& addresses, bool is_gateway) {
  for (const std::string& text : addresses) {
    const auto address = net::parse_address(text);
    auto listener = address ? net::listen_on(*address) : pass(address.error());
    if (!listener) {
      log_warn("the standby cannot forward connections at {}: {}", text, listener.error().message);
      continue;
    }
    auto door = std::make_unique<Door>(Door{std::move(*listener), is_gateway, {}, {}});
    Door& made = *door;
    watch(made);
    doors_.push_back(std::move(door));
  }
}

// No network may fill the door for the others.
bool StandbyDoor::has_place_for(const std::string& peer) const {
  if (passages_.size() >= limits::http_connections_max / 4)
    return false;
  const auto held = std::ranges::count_if(
      passages_, [&](const auto& one) { return one->peer == peer && !one->is_over(); });
  return static_cast<std::size_t>(held) < limits::http_connections_per_peer_max;
}

void StandbyDoor::accept_all(Door& door) {
  while (true) {
    Fd client = net::sockets::accept_one(door.listener.fd.get());
    if (!client && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
      // Connections wait in the queue of the kernel meanwhile.
      door.watch.cancel();
      door.again = loop_.after(accept_pause, [this, &door] { watch(door); });
      return;
    }
    if (!client)
      return;
    const std::string peer = net::peer_at(client.get()).name;
    if (has_place_for(peer))
      admit(std::move(client), peer, door.is_gateway ? place_.gateway : place_.api);
  }
}

void StandbyDoor::watch(Door& door) {
  door.watch = loop_.on_readable(door.listener.fd.get(), [this, &door] { accept_all(door); });
}

// Without a leader, or if it is this head (it led before it was restarted), the client is sent
// away: it tries again.
void StandbyDoor::admit(Fd client, const std::string& peer, const std::string& target) {
  if (target.empty() || place_.identity == options_.identity)
    return;
  const auto address = net::parse_address(target);
  if (!address)
    return;
  const auto found = net::resolve(*address, true);
  if (!found || found->empty())
    return;
  auto leader = net::start_connect(found->front());
  if (!leader)
    return;
  passages_.push_back(
      std::make_shared<Passage>(loop_, peer, std::move(client), std::move(*leader)));
  passages_.back()->start();
}

void StandbyDoor::lead_to(const LeaderPlace& place) {
  loop_.post([this, place] {
    if (place == told_)
      return;
    place_ = told_ = place;
    // The gateway knows who of its own machine connects; these clients come from elsewhere.
    if (is_of_this_machine(place_.gateway))
      place_.gateway.clear();
    log_info("forwarding connections to the leader at {}",
             place_.api.empty() ? "no address" : place_.api);
  });
}

}  // namespace billow::head
