// The whole proxy with arbitrary bytes from both sides: a client and a replica over real sockets,
// on the proxy's own loop, cut and ended as a number says. What must hold whatever they send is
// checked by readers of its own, not by the parser under test:
// - what a replica is sent is proper HTTP, with one reading, and no more requests than clients were
// let in with;
// - what a client is sent is proper HTTP;
// - every request that arrived is over exactly once, and nothing of a connection is left when its
// client has gone.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gateway/proxy.h"

namespace billow::gateway {

// A message read by the plainest rules; the reason why it is none, or how many bytes it took (0: it
// is not whole).
struct Reading {
  std::string wrong;
  std::size_t used = 0;
  std::string method, first_line;
  int status = 0;
  bool upgrade = false, until_close = false;
};

// What the head of a message says about its body.
struct Framing {
  std::optional<std::uint64_t> length;
  bool chunked = false;
};

// The rule that the request line or status line breaks; empty: none.
inline std::string read_first_line(std::string_view line, bool answer, Reading& out) {
  out.first_line = line;
  if (answer) {
    if (line.size() < 12 || !line.starts_with("HTTP/1.1 "))
      return "no status line";
    out.status = std::atoi(std::string(line.substr(9, 3)).c_str());
    return out.status < 100 || out.status > 999 ? "no status" : "";
  }
  const auto one = line.find(' '), two = line.rfind(' ');
  if (one == line.npos || one == two || line.substr(two) != " HTTP/1.1" ||
      line.substr(one + 1, two - one - 1).find(' ') != line.npos)
    return "no request line";
  out.method = line.substr(0, one);
  return "";
}

inline std::string read_length(std::string_view value, Framing& framing) {
  if (framing.length || framing.chunked)
    return "two lengths";
  if (value.empty() || value.size() > 18 || value.find_first_not_of("0123456789") != value.npos)
    return "a length that is none";
  std::uint64_t n = 0;
  for (const char c : value)
    n = n * 10 + static_cast<std::uint64_t>(c - '0');
  framing.length = n;
  return "";
}

inline std::string read_header_line(std::string_view line, Framing& framing, Reading& out) {
  const auto colon = line.find(':');
  if (colon == 0 || colon == line.npos || line.front() == ' ' || line.front() == '\t' ||
      line[colon - 1] == ' ' || line[colon - 1] == '\t')
    return "no header line";
  std::string name(line.substr(0, colon));
  for (char& c : name)
    c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ')
    value.remove_prefix(1);
  if (name == "content-length")
    return read_length(value, framing);
  if (name == "transfer-encoding") {
    if (framing.length || framing.chunked || value != "chunked")
      return "two lengths, or an encoding that is none";
    framing.chunked = true;
  } else if (name == "upgrade") {
    out.upgrade = true;
  }
  return "";
}

// The chunks from `at` on; sets out.used once the last one is there.
inline std::string read_chunks(std::string_view in, std::size_t at, Reading& out) {
  for (;;) {
    const auto end = in.find("\r\n", at);
    if (end == in.npos)
      return "";
    std::uint64_t size = 0;
    if (end == at || end - at > 15)
      return "a chunk size that is none";
    for (const char c : in.substr(at, end - at)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0)
        return "a chunk size that is none";
      size = size * 16 + static_cast<std::uint64_t>(digit);
    }
    at = end + 2;
    if (in.size() - at < size + 2)
      return "";
    if (size == 0 && in.substr(at, 2) != "\r\n")
      return "trailers that nobody announced";
    if (in.substr(at + size, 2) != "\r\n")
      return "a chunk without its end";
    at += size + 2;
    if (size == 0) {
      out.used = at;
      return "";
    }
  }
}

inline Reading read_message(std::string_view in, bool answer, bool no_body) {
  Reading out;
  const auto head_end = in.find("\r\n\r\n");
  if (head_end == in.npos)
    return out;
  Framing framing;
  std::string_view head = in.substr(0, head_end + 2);
  while (!head.empty() && out.wrong.empty()) {
    const auto end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(end + 2);
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != line.npos)
      out.wrong = "a line with a control character";
    else if (line.data() == in.data())
      out.wrong = read_first_line(line, answer, out);
    else
      out.wrong = read_header_line(line, framing, out);
  }
  if (!out.wrong.empty())
    return out;
  const std::size_t at = head_end + 4;
  if (no_body || (answer && (out.status < 200 || out.status == 204 || out.status == 304))) {
    out.used = at;
  } else if (framing.chunked) {
    out.wrong = read_chunks(in, at, out);
  } else if (framing.length) {
    if (in.size() - at >= *framing.length)
      out.used = at + *framing.length;
  } else if (answer) {
    out.until_close = true;
    out.used = in.size();
  } else {
    out.used = at;
  }
  return out;
}

class ProxyDrive final : public ProxyHost {
 public:
  ProxyDrive() {
    listener_ = std::move(*net::listen_on({.host = "127.0.0.1", .port = 0, .unix_path = {}}));
    ::fcntl(listener_.fd.get(), F_SETFL, O_NONBLOCK);
    upstream_ = *Upstream::create(1, listener_.bound.text());
    Proxy::Options options;
    options.listen = {"127.0.0.1:0"};
    proxy_ = std::move(*Proxy::create(loop_, options, *this));
    address_ = net::resolve(*net::parse_address(proxy_->bound_addresses().front()))->front();
  }
  ~ProxyDrive() override {
    waiting_.clear();
    upstream_->close();
    proxy_.reset();
  }

  // Which rule was broken; empty: none.
  std::string play(std::string_view client_says, std::string_view replica_says, std::uint64_t how) {
    Rng rng(how);
    arrived_ = over_ = given_ = 0;
    methods_.clear();
    mood_ = rng.below(8);
    Scene scene{.client = std::move(*net::start_connect(address_)),
                .client_says = client_says,
                .replica_says = replica_says};
    scene.leaves = rng.chance(0.2);
    const bool abrupt = rng.chance(0.3);
    scene.one_byte = rng.chance(0.1);
    scene.replica_ends_at =
        rng.chance(0.3) ? rng.below(replica_says.size() + 1) : replica_says.size();
    for (std::uint32_t quiet = 0, turn = 0; quiet < 6 && turn < 400; ++turn) {
      bool moved = false;
      if (scene.sent < client_says.size())
        moved = client_speaks(scene, rng);
      else if (scene.leaves)
        break;
      turn_loop();
      moved |= accept_all(scene);
      for (Link& link : scene.links)
        moved |= replica_speaks(scene, link, rng);
      moved |= pull(scene.client.get(), scene.got);
      moved |= give_waiting();
      quiet = moved ? 0 : quiet + 1;
    }
    if (!end_play(scene, abrupt))
      return "a connection was left when its client had gone";
    return judge(scene);
  }
  std::uint64_t requests() const {
    return requests_;
  }  // that replicas were sent, over all that was played

  // ---- ProxyHost
  void arrived(const std::shared_ptr<Front>& front) override {
    ++arrived_;
    methods_.push_back(front->head().method);
    front->ticket.id = arrived_;
    front->ticket.timeout = seconds(30);
    if (mood_ == 0)
      return front->refuse(net::problem(503, "no"));
    if (mood_ == 1)
      return front->read_body(1 << 16, [front](std::string body) {
        front->respond(net::Response::text(200, std::to_string(body.size())));
      });
    if (mood_ <= 3) {
      waiting_.push_back(front);
      return;
    }
    ++given_;
    front->give(upstream_);
  }
  bool failed(const std::shared_ptr<Front>& front,
              const Failure& failure,
              const std::string&) override {
    if (!may_retry(failure))
      return false;
    front->ticket.upstream = nullptr;
    loop_.post([this, front] {
      if (!front->active())
        return;
      ++given_;
      front->give(upstream_);
    });
    return true;
  }
  void over(Front&, End) override { ++over_; }
  std::string next_request_id() override { return "r" + std::to_string(arrived_); }

 private:
  // A connection that the proxy has made to the replica.
  struct Link {
    Fd fd;
    std::string got;
    std::size_t said = 0;
    bool closed = false;
  };
  struct Scene {
    Fd client;
    std::string_view client_says, replica_says;
    bool leaves = false, one_byte = false;
    std::size_t replica_ends_at = 0, sent = 0;
    std::string got;
    std::vector<Link> links;
  };

  // Sends a piece of `what` from `at` on; whether any byte left. A connection that is broken has
  // said all.
  static bool speak(int fd, std::string_view what, std::size_t& at, const Scene& scene, Rng& rng) {
    const std::size_t left = what.size() - at;
    const std::size_t piece = std::min<std::size_t>(
        left, scene.one_byte ? 1 : 1 + rng.below(rng.chance(0.5) ? 16 : 4096));
    const ssize_t n = ::send(fd, what.data() + at, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
      at += static_cast<std::size_t>(n);
    else if (n < 0 && errno != EAGAIN && errno != EINPROGRESS && errno != ENOTCONN)
      at = what.size();
    return n > 0;
  }
  static bool client_speaks(Scene& scene, Rng& rng) {
    return speak(scene.client.get(), scene.client_says, scene.sent, scene, rng);
  }
  // It answers whatever was asked with the same bytes, over and over, from the moment it was asked
  // anything.
  static bool replica_speaks(Scene& scene, Link& link, Rng& rng) {
    if (link.closed)
      return false;
    bool moved = pull(link.fd.get(), link.got);
    if (link.got.empty() || scene.replica_says.empty())
      return moved;
    if (link.said < scene.replica_ends_at) {
      moved |= speak(link.fd.get(), scene.replica_says.substr(0, scene.replica_ends_at), link.said,
                     scene, rng);
    } else if (rng.chance(0.5)) {
      ::shutdown(link.fd.get(), SHUT_RDWR);
      link.closed = moved = true;
    }
    return moved;
  }
  bool accept_all(Scene& scene) {
    const std::size_t before = scene.links.size();
    for (int fd;
         (fd = ::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
      scene.links.push_back({Fd(fd), "", 0, false});
    return scene.links.size() > before;
  }
  // The client goes. Whether the proxy has let go of its connection.
  bool end_play(Scene& scene, bool abrupt) {
    if (abrupt) {
      const linger hard{1, 0};
      ::setsockopt(scene.client.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    pull(scene.client.get(), scene.got);
    scene.client = Fd();
    waiting_.clear();
    for (Link& link : scene.links)
      pull(link.fd.get(), link.got);
    const bool gone = loop_.run_until([&] { return proxy_->connections() == 0; }, seconds(5));
    accept_all(scene);  // also what the proxy began and nobody has looked at: the next play must
                        // not find it
    for (Link& link : scene.links)
      pull(link.fd.get(), link.got);
    upstream_->close();
    return gone;
  }
  std::string judge(const Scene& scene) {
    if (over_ != arrived_)
      return fmt::format("{} requests arrived and {} are over", arrived_, over_);
    std::size_t requests = 0;
    for (const Link& link : scene.links)
      if (std::string why = judge_requests(link.got, requests); !why.empty())
        return "a replica was sent: " + why;
    if (requests > given_)
      return fmt::format("replicas were sent {} requests for {}", requests, given_);
    if (std::string why = judge_answers(scene.got); !why.empty())
      return "a client was sent: " + why;
    requests_ += requests;
    return {};
  }
  void turn_loop() {
    for (int i = 0; i < 4; ++i) {
      bool turned = false;
      loop_.post([&] { turned = true; });
      (void)loop_.run_until([&] { return turned; }, seconds(5));
    }
  }
  bool give_waiting() {
    const auto now = std::exchange(waiting_, {});
    for (const auto& front : now) {
      if (!front->active())
        continue;
      ++given_;
      front->give(upstream_);
    }
    return !now.empty();
  }
  static bool pull(int fd, std::string& into) {
    char buffer[65536];
    bool any = false;
    for (ssize_t n; (n = ::recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0; any = true)
      into.append(buffer, static_cast<std::size_t>(n));
    return any;
  }
  static std::string judge_requests(std::string_view in, std::size_t& count) {
    while (!in.empty()) {
      const Reading one = read_message(in, false, false);
      if (!one.wrong.empty())
        return fmt::format("{} in \"{}\"", one.wrong, in.substr(0, 300));
      if (!one.first_line.empty())
        ++count;
      if (one.used == 0 || one.upgrade)
        return {};  // cut short by its end, or no longer HTTP
      in.remove_prefix(one.used);
    }
    return {};
  }
  std::string judge_answers(std::string_view in) const {
    for (std::size_t i = 0; !in.empty();) {
      const Reading one = read_message(in, true, i < methods_.size() && methods_[i] == "HEAD");
      if (!one.wrong.empty())
        return fmt::format("{} in \"{}\"", one.wrong, in.substr(0, 300));
      if (one.used == 0 || one.status == 101)
        return {};
      if (one.status >= 200)
        ++i;
      in.remove_prefix(one.used);
    }
    return {};
  }

  net::Loop loop_;
  net::Listener listener_;
  std::shared_ptr<Upstream> upstream_;
  std::unique_ptr<Proxy> proxy_;
  net::RawAddress address_;
  std::vector<std::shared_ptr<Front>> waiting_;
  std::vector<std::string> methods_;
  std::uint64_t mood_ = 0, requests_ = 0;
  std::size_t arrived_ = 0, over_ = 0, given_ = 0;
};

}  // namespace billow::gateway
