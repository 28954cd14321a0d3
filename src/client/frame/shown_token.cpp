#include "client/frame/shown_token.h"

#include <fmt/format.h>
#include <stdio.h>
#include <unistd.h>

#include <cstdlib>

#include "base/text.h"
#include "client/frame/terminal.h"

namespace billow::client {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Result<std::string> secret_from_stdin(const char* what) {
  const OnInterrupt left(fmt::format("no {} was given; nothing was changed", what));
  std::optional<RawMode> hidden;
  if (::isatty(STDIN_FILENO) == 1) {
    ::dprintf(STDERR_FILENO, "%s: ", what);
    hidden = BILLOW_TRY(RawMode::hide(STDIN_FILENO));
  }
  std::string text;
  for (char c; text.size() < 4096 && ::read(STDIN_FILENO, &c, 1) == 1 && c != '\n';)
    text += c;
  if (hidden)
    ::dprintf(STDERR_FILENO, "\n");
  hidden.reset();
  const std::string token(trim(text));
  if (token.empty())
    return fail(Code::invalid, fmt::format("no {} was given", what));
  return token;
}

PinnedToken split_pin(const std::string& text) {
  const auto dot = text.find('.');
  return dot == std::string::npos ? PinnedToken{text, ""}
                                  : PinnedToken{text.substr(0, dot), text.substr(dot + 1)};
}

Status check_encrypted(const std::vector<net::Endpoint>& heads, bool insecure) {
  for (const net::Endpoint& head : heads)
    if (!insecure && !head.tls && !head.address.is_loopback())
      return fail(
          Code::forbidden,
          fmt::format("{} is not encrypted: anyone on the network path could read the token",
                      head.text()),
          fmt::format("use https://{}, or say --insecure if you trust the network",
                      head.address.text()));
  return {};
}

Error explain_connection(Error error, const std::string& url, bool pinned) {
  const bool certificate = error.message.find("certificate") != std::string::npos ||
                           error.message.find("verify") != std::string::npos;
  if (certificate)
    error.hint = pinned ? "the token was created by another head: check the address, or create a "
                          "new token there"
                        : "the head's certificate is self-signed: use a token created by it, which "
                          "carries its fingerprint (`billow login` also takes --fingerprint)";
  else if (url.starts_with("https://") &&
           error.message.find("wrong version number") != std::string::npos)
    error.hint = "this address does not use TLS: try http://" + url.substr(8);
  else if (url.starts_with("http://") && error.code == Code::unavailable)
    error.hint = "a head that listens on the network uses https: try https://…";
  return error;
}

}  // namespace billow::client
