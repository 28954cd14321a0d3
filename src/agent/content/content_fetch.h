// A tree of files from the head, piece by piece to whoever takes them, without a copy of its own on
// the way: for what is unpacked once and kept unpacked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/address.h"
#include "net/http/http.h"
#include "net/tls.h"

namespace billow::agent {

struct ContentSource {
  net::Endpoint head;
  net::TlsClientOptions tls;
  std::string token_file;
};
struct ContentSink {
  std::function<Status(std::string_view list)> list;
  std::function<Status(std::string_view piece)>
      piece;  // in the list's order, each as often as it stands there
  std::function<void(std::uint64_t done, std::uint64_t total)>
      progress;  // of bytes as they are stored
  std::function<bool()> cancelled;
};
// One question to the head, as this node.
Result<std::string> ask_head(const ContentSource& source,
                             net::Method method,
                             std::string target,
                             std::string body);
// Tells the head which image a task runs in.
Status tell_image(const ContentSource& source, std::uint64_t task, const std::string& digest);
Status fetch_content(const ContentSource& source,
                     const std::string& digest,
                     const ContentSink& sink);

}  // namespace billow::agent
