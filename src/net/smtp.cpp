#include "net/smtp.h"

#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/crypto.h"
#include "base/text.h"
#include "net/transport.h"

namespace billow::net {
namespace {

constexpr Duration patience = seconds(30);  // for each step
constexpr std::size_t reply_bytes_max = 64 << 10;

bool wait_until(int fd, short events, SteadyTime deadline) {
  for (;;) {
    const Duration left = deadline - system_clock().steady();
    if (left.ns <= 0)
      return false;
    pollfd watched{fd, events, 0};
    const int rc =
        ::poll(&watched, 1, static_cast<int>(std::min<std::int64_t>(left.ms() + 1, 60'000)));
    if (rc > 0)
      return true;
    if (rc < 0 && errno != EINTR)
      return false;
  }
}

std::string printable(std::string_view text) {
  std::string out(text.substr(0, 200));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return static_cast<unsigned char>(c) < 32; }, ' ');
  return out;
}

struct Reply {
  int code = 0;
  std::vector<std::string> lines;
};

class Session {
 public:
  explicit Session(const SmtpServer& server) : server_(server) {}

  Status open() {
    const SteadyTime deadline = system_clock().steady() + patience;
    std::string why = "the host has no address";
    for (const RawAddress& address : BILLOW_TRY(resolve(server_.address))) {
      auto fd = start_connect(address);
      if (!fd) {
        why = fd.error().message;
        continue;
      }
      if (!wait_until(fd->get(), POLLOUT, deadline))
        return fail(Code::timed_out, "no answer");
      if (const int error = connect_error(fd->get()); error != 0) {
        why = ::strerror(error);
        continue;
      }
      if (!server_.tls) {
        link_.emplace(std::move(*fd));
        return {};
      }
      return start_tls(std::move(*fd));
    }
    return fail(Code::unavailable, why);
  }

  // Only while nothing of the server's is unread: what was sent in plain before TLS is not trusted.
  Status upgrade() {
    if (!input_.empty())
      return fail(Code::forbidden, "the server sent more than its answer to STARTTLS");
    const int copy = ::dup(link_->fd());
    if (copy < 0)
      return fail_errno("dup", errno);
    link_.reset();
    return start_tls(Fd(copy));
  }

  bool confidential() const { return link_->tls() || server_.address.is_loopback(); }
  bool tls() const { return link_->tls(); }

  Status send(std::string_view data) {
    const SteadyTime deadline = system_clock().steady() + patience;
    while (!data.empty()) {
      const iovec piece{const_cast<char*>(data.data()), data.size()};
      const IoResult result = link_->write(&piece, 1);
      if (result.state == Io::done) {
        data.remove_prefix(result.bytes);
        continue;
      }
      BILLOW_TRY_VOID(wait(result.state, deadline));
    }
    return {};
  }

  Result<Reply> reply() {
    const SteadyTime deadline = system_clock().steady() + patience;
    Reply out;
    for (;;) {
      const std::size_t end = input_.find('\n');
      if (end != std::string::npos) {
        std::string line(trim(input_.substr(0, end)));
        input_.erase(0, end + 1);
        const auto code = parse_int(line.substr(0, 3), 200, 599);
        if (!code)
          return fail(Code::unavailable, "it does not answer like a mail server");
        out.code = static_cast<int>(*code);
        const bool more = line.size() > 3 && line[3] == '-';
        out.lines.push_back(line.size() > 4 ? line.substr(4) : "");
        if (!more)
          return out;
        continue;
      }
      if (input_.size() > reply_bytes_max || out.lines.size() > 100)
        return fail(Code::unavailable, "its answer is too long");
      char buffer[4096];
      const IoResult result = link_->read(buffer, sizeof buffer);
      if (result.state == Io::done)
        input_.append(buffer, result.bytes);
      else
        BILLOW_TRY_VOID(wait(result.state, deadline));
    }
  }

  // Sends a command and expects an answer of this class (2: done, 3: go on). `shown` stands in the
  // error instead of a command with a password.
  Result<Reply> ask(const std::string& command, int expected, std::string_view shown = {}) {
    BILLOW_TRY_VOID(send(command + "\r\n"));
    return expect(expected, shown.empty() ? std::string_view(command) : shown);
  }
  Result<Reply> expect(int expected, std::string_view what) {
    Reply answer = BILLOW_TRY(reply());
    if (answer.code / 100 == expected)
      return answer;
    const std::string text =
        fmt::format("{}: {} {}", printable(what), answer.code, printable(join(answer.lines, " ")));
    // 4xx: try again later. 5xx: it will not work.
    return fail(answer.code / 100 == 4 ? Code::unavailable : Code::invalid, text);
  }

 private:
  Status start_tls(Fd fd) {
    const SteadyTime deadline = system_clock().steady() + patience;
    const auto context = BILLOW_TRY(TlsContext::client(server_.trust));
    link_.emplace(BILLOW_TRY(Transport::with_tls(std::move(fd), context, server_.address.host)));
    for (;;) {
      const IoResult result = link_->handshake();
      if (result.state == Io::done)
        return {};
      if (result.state == Io::closed || result.state == Io::failed)
        return fail(Code::unavailable, fmt::format("TLS: {}", link_->error()));
      BILLOW_TRY_VOID(wait(result.state, deadline));
    }
  }
  Status wait(Io state, SteadyTime deadline) {
    if (state == Io::closed || state == Io::failed)
      return fail(Code::unavailable, "the connection broke");
    if (!wait_until(link_->fd(), state == Io::want_read ? POLLIN : POLLOUT, deadline))
      return fail(Code::timed_out, "no answer");
    return {};
  }

  const SmtpServer& server_;
  std::optional<Transport> link_;
  std::string input_;
};

bool offers(const Reply& hello, std::string_view what) {
  return std::any_of(hello.lines.begin() + 1, hello.lines.end(), [&](const std::string& line) {
    return lower(line.substr(0, line.find(' '))) == what;
  });
}
bool offers_login(const Reply& hello, std::string_view method) {
  return std::any_of(hello.lines.begin() + 1, hello.lines.end(), [&](const std::string& line) {
    const auto words = split(lower(line), ' ');
    return words.front() == "auth" && std::find(words.begin(), words.end(), method) != words.end();
  });
}

Status log_in(Session& session, const SmtpServer& server, const Reply& hello) {
  if (!session.confidential())
    return fail(Code::forbidden, "the server offers no TLS, so the password was not sent",
                "use smtps://, or a server that offers STARTTLS");
  if (offers_login(hello, "plain")) {
    std::string secret;
    secret += '\0';
    secret += server.user;
    secret += '\0';
    secret += server.password;
    BILLOW_TRY(session.ask("AUTH PLAIN " + base64(secret), 2, "AUTH"));
    return {};
  }
  if (!offers_login(hello, "login"))
    return fail(Code::invalid, "the server offers neither AUTH PLAIN nor AUTH LOGIN");
  BILLOW_TRY(session.ask("AUTH LOGIN", 3));
  BILLOW_TRY(session.ask(base64(server.user), 3, "AUTH LOGIN"));
  BILLOW_TRY(session.ask(base64(server.password), 2, "AUTH LOGIN"));
  return {};
}

// A line that begins with a dot gets another one (RFC 5321, 4.5.2).
std::string with_dots(std::string_view message) {
  std::string out;
  bool line_begins = true;
  for (const char c : message) {
    if (line_begins && c == '.')
      out += '.';
    out += c;
    line_begins = c == '\n';
  }
  if (!out.ends_with("\r\n"))
    out += "\r\n";
  return out;
}

Status converse(const SmtpServer& server, const std::string& to, std::string_view message) {
  Session session(server);
  BILLOW_TRY_VOID(session.open());
  BILLOW_TRY(session.expect(2, "greeting"));
  const std::string hello = "EHLO " + server.from.substr(server.from.find('@') + 1);
  Reply offered = BILLOW_TRY(session.ask(hello, 2));
  if (!session.tls() && offers(offered, "starttls")) {
    BILLOW_TRY(session.ask("STARTTLS", 2));
    BILLOW_TRY_VOID(session.upgrade());
    offered = BILLOW_TRY(session.ask(hello, 2));
  }
  if (!server.user.empty())
    BILLOW_TRY_VOID(log_in(session, server, offered));
  BILLOW_TRY(session.ask(fmt::format("MAIL FROM:<{}>", server.from), 2));
  BILLOW_TRY(session.ask(fmt::format("RCPT TO:<{}>", to), 2));
  BILLOW_TRY(session.ask("DATA", 3));
  BILLOW_TRY_VOID(session.send(with_dots(message) + ".\r\n"));
  BILLOW_TRY(session.expect(2, "the message"));
  (void)session.send("QUIT\r\n");
  return {};
}

}  // namespace

bool is_mail_address(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == 0 || at == std::string_view::npos || at + 1 == text.size() || text.size() > 254 ||
      text.find('@', at + 1) != std::string_view::npos)
    return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c > 32 && c < 127 && std::string_view("<>()[],;:\\\"").find(c) == std::string_view::npos;
  });
}

Result<SmtpServer> parse_smtp(std::string_view url) {
  SmtpServer out;
  std::string_view rest = url;
  if (rest.starts_with("smtps://"))
    out.tls = true;
  else if (!rest.starts_with("smtp://"))
    return fail(Code::invalid, fmt::format("\"{}\" is not the address of a mail server", url),
                "write smtp://USER@HOST:587 or smtps://USER@HOST:465");
  rest.remove_prefix(out.tls ? 8 : 7);
  if (rest.ends_with('/'))
    rest.remove_suffix(1);
  if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
    out.user = std::string(rest.substr(0, at));
    if (out.user.find(':') != std::string::npos)
      return fail(Code::invalid, "the address of the mail server must not contain a password",
                  "put it into a file and add --smtp-password-file FILE");
    rest.remove_prefix(at + 1);
  }
  const bool has_port = rest.rfind(':') != std::string_view::npos && !rest.ends_with(']');
  out.address = BILLOW_TRY(parse_address(
      has_port ? std::string(rest) : fmt::format("{}:{}", rest, out.tls ? 465 : 587)));
  return out;
}

Status send_mail(const SmtpServer& server, const std::string& to, std::string_view message) {
  if (!is_mail_address(to))
    return fail(Code::invalid, fmt::format("\"{}\" is not a mail address", printable(to)));
  const Status sent = converse(server, to, message);
  if (sent)
    return {};
  return pass(sent.error(), fmt::format("the mail server {}", server.address.text()));
}

}  // namespace billow::net
