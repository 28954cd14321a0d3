// A connection into a running job, over a WebSocket: to one of its ports, or to a secure shell
// inside it. Binary messages are bytes, in both directions; texts are {"type": "open"} (once,
// first), "eof" (no more bytes this way) and "error" (it has ended, and why).
//
// Invariants: no more is read from either side than the other can take; an end of file on one side
// leaves the other open.
#include "api/call.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::api::streams {
namespace {

using namespace wire::agent_v1;

constexpr std::size_t client_backlog_max = 256 << 10;
constexpr Duration open_patience = seconds(20);
constexpr Duration start_patience = minutes(10), start_look = milliseconds(50);

struct Relay : std::enable_shared_from_this<Relay> {
  CallPtr call;
  std::shared_ptr<net::WebSocket> socket;
  std::unique_ptr<wire::agent_v1::Tunnel> tunnel;
  std::string to_job;                          // has come, and does not fit what the agent can take
  std::uint64_t credit = tunnel_window_bytes;  // that the agent can take
  std::uint64_t owed = 0;  // went to the client, and was not granted to the agent again
  net::Timer patience, rights, starting;
  JobId job;
  bool opened = false, client_ended = false, end_sent = false, job_ended = false, done = false;

  void listen() {
    socket->on_message([self = shared_from_this()](std::string_view data, bool binary) {
      self->from_client(data, binary);
    });
    socket->on_close([self = shared_from_this()](const net::WebSocket::Closed&) { self->close(); });
    socket->on_drain([weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->grant();
        self->over();
      }
    });
  }
  // A job runs from its placement on; its process comes a moment later, or when its image is there.
  void begin(NodeId node, const TunnelOpen& request, SteadyTime until) {
    const Task* task = call->host.state().find_task(request.task);
    if (done)
      return;
    if (!task || task->state == TaskState::ended)
      return fail("the job has ended");
    if (task->state != TaskState::starting)
      return open(node, request);
    look_at_rights();
    if (system_clock().steady() > until)
      return fail("the job's process has not started yet; see `billow explain`");
    starting = call->host.loop().after(start_look, [weak = weak_from_this(), node, request, until] {
      if (const auto self = weak.lock())
        self->begin(node, request, until);
    });
  }
  void open(NodeId node, TunnelOpen request) {
    tunnel = call->host.open_tunnel(
        node, std::move(request),
        [weak = weak_from_this()](const Tunnelled& message, std::string_view blob) {
          if (const auto self = weak.lock())
            self->from_agent(message, blob);
        });
    if (!tunnel)
      return fail("the job's node does not answer; try again when it is back");
    rights = call->host.loop().every(rights_every, [weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->look_at_rights();
    });
    // An agent of an older version knows no tunnels, and says nothing.
    patience = call->host.loop().after(open_patience, [weak = weak_from_this()] {
      if (const auto self = weak.lock(); self && !self->opened)
        self->fail("the job's node does not answer; check that its agent has the head's version");
    });
  }
  void close() {
    if (std::exchange(done, true))
      return;
    rights = {};
    starting = {};
    // The callbacks hold this object; let go of them outside of any of them.
    call->host.loop().post([self = shared_from_this()] {
      self->tunnel.reset();
      self->socket->on_message(nullptr);
      self->socket->on_close(nullptr);
    });
  }
  void look_at_rights() {
    if (done)
      return;
    if (const Status still = call->still_allowed(); !still)
      return fail(still.error().message);
    const auto owner = owner_of(call->host.state(), job);
    if (owner && !may_enter(*call, *owner))
      fail("you are no longer allowed to connect to this job");
  }
  void say(const Json& message) {
    if (!done)
      socket->send_text(message.dump());
  }
  void fail(const std::string& why) {
    if (done)
      return;
    say(Json::object({{"type", "error"}, {"detail", why}}));
    socket->close();
    close();
  }
  void over() {
    if (!job_ended || !end_sent || done || socket->buffered() > 0)
      return;  // a close waits for a slow reader for a short time only
    socket->close();
    close();
  }

  // ---- from the job
  void from_agent(const Tunnelled& message, std::string_view blob) {
    if (done)
      return;
    if (const auto* answer = std::get_if<TunnelOpened>(&message)) {
      if (!answer->error.empty())
        return fail(answer->error);
      opened = true;
      Json document = Json::object({{"type", "open"}});
      if (!answer->host_key.empty()) {
        document.set("host_key", answer->host_key);
        document.set("user", answer->user);
      }
      say(document);
      forward();
    } else if (std::holds_alternative<TunnelData>(message)) {
      owed += blob.size();
      // An agent that sends more than was granted would fill the head's memory.
      if (owed > tunnel_window_bytes + tunnel_piece_bytes_max)
        return fail("the node sent more data than it was allowed to");
      socket->send_binary(blob);
      grant();
    } else if (const auto* more = std::get_if<TunnelCredit>(&message)) {
      credit += more->bytes;
      forward();
    } else if (const auto* end = std::get_if<TunnelEnd>(&message)) {
      if (end->cut)
        return fail(end->error);
      job_ended = true;
      say(Json::object({{"type", "eof"}}));
      over();
    }
  }
  void grant() {
    if (done || !tunnel || owed == 0 || socket->buffered() > client_backlog_max / 2)
      return;
    if (owed < tunnel_window_bytes / 4 && socket->buffered() > 0)
      return;
    tunnel->send(TunnelCredit{0, std::exchange(owed, 0)}, {});
  }

  // ---- from the client
  void from_client(std::string_view data, bool binary) {
    if (done || client_ended)
      return;
    if (binary)
      to_job += data;
    else if (const auto json = parse_json(data); json && (*json)["type"].str_or("") == "eof")
      client_ended = true;
    forward();
  }
  void forward() {
    if (done)
      return;
    std::size_t at = 0;
    while (opened && at < to_job.size() && credit > 0) {
      const std::size_t n = std::min<std::size_t>(
          {to_job.size() - at, static_cast<std::size_t>(credit), tunnel_piece_bytes_max});
      if (!tunnel->send(TunnelData{}, std::string_view(to_job).substr(at, n)))
        return fail("the job's node does not answer");
      at += n;
      credit -= n;
    }
    to_job.erase(0, at);
    if (to_job.size() > client_backlog_max)
      socket->pause();
    else
      socket->resume();
    if (opened && client_ended && to_job.empty() && !std::exchange(end_sent, true)) {
      tunnel->send(TunnelEnd{}, {});
      over();
    }
  }
};

}  // namespace

void tunnel(CallPtr call) {
  const net::Request& request = call->request();
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto& state = call->host.state();
  const Job* job = state.find_job(ref->id);
  if (!job || !may_see(*call, job->project))
    return call->fail({Code::not_found, fmt::format("there is no running job {}", call->parts[0]),
                       "see `billow ps`; you can connect only to running jobs"});
  if (const Status enter = may_enter(*call, {job->project, job->user, job->agent}); !enter)
    return call->fail(enter.error());
  TunnelOpen open;
  const std::string_view port_text = request.param("port");
  if (port_text != "ssh") {
    const auto port = parse_int(port_text, 1, 65535);
    if (!port)
      return call->fail({Code::invalid,
                         fmt::format("port \"{}\" must be a number from 1 to 65535", port_text),
                         ""});
    open.port = static_cast<std::uint16_t>(*port);
  } else {
    open.authorized_key = request.param("key");
    if (open.authorized_key.empty())
      return call->fail({Code::invalid, "a secure shell needs the public key to allow",
                         "?port=ssh&key=ssh-ed25519 AAAA…"});
  }
  std::uint64_t rank = 0;
  if (!request.param("rank").empty()) {
    const auto given = parse_int(request.param("rank"), 0, INT32_MAX);
    if (!given)
      return call->fail({Code::invalid, fmt::format("rank: {}", given.error().message), ""});
    rank = static_cast<std::uint64_t>(*given);
  }
  const Task* task = rank < job->tasks.size() ? state.find_task(job->tasks[rank]) : nullptr;
  if (!task || task->state == TaskState::ended)
    return call->fail(
        {Code::conflict,
         fmt::format("job {} has no running task{} (it is {})", call->parts[0],
                     rank > 0 ? fmt::format(" of rank {}", rank) : "", enum_name(job->state)),
         "wait until it runs; see: billow describe " + call->parts[0]});
  open.task = task->id;
  auto socket = call->exchange->upgrade_websocket({});
  if (!socket)
    return call->fail(socket.error());
  auto relay = std::make_shared<Relay>();
  relay->call = call;
  relay->job = job->id;
  relay->socket = std::move(*socket);
  record_entry(*call, job->id, open.port ? fmt::format("port {}", open.port) : std::string("ssh"));
  relay->listen();
  relay->begin(task->node, open, system_clock().steady() + start_patience);
}

}  // namespace billow::api::streams
