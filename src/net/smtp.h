// Sends mail to a mail server (SMTP, RFC 5321), with TLS from the beginning or by STARTTLS. Each
// call opens one connection and blocks; the head calls it on a worker.
//
// A password is sent only over TLS, or to a server on this machine.
#pragma once

#include <string>
#include <string_view>

#include "net/address.h"
#include "net/tls.h"

namespace billow::net {

struct SmtpServer {
  Address address;
  bool tls = false;  // from the first byte (smtps://); else STARTTLS if the server offers it
  std::string user, password;  // empty: no login
  std::string from;            // "billow@example.org"
  TlsClientOptions trust;
};
// "smtp://[USER@]HOST[:PORT]" (port 587) or "smtps://…" (port 465).
Result<SmtpServer> parse_smtp(std::string_view url);
// Whether a text can stand in an SMTP command as an address: one "@", no spaces, no control
// characters.
bool is_mail_address(std::string_view text);

// `message` is a whole mail (RFC 5322) with CRLF line ends. Code::unavailable or timed_out: it may
// work later. Any other error is the server's refusal.
Status send_mail(const SmtpServer& server, const std::string& to, std::string_view message);

}  // namespace billow::net
