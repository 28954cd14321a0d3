// Streams a tree of files from the head piece by piece, without storing it: for content that is
// unpacked once and kept unpacked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/address.h"
#include "net/http/http.h"
#include "net/http/node_credential.h"
#include "net/tls.h"

namespace billow::agent {

struct ContentSource {
  net::Endpoint head;
  net::TlsClientOptions tls;
  std::shared_ptr<const net::NodeCredential> credential;  // null: none
};
struct ContentSink {
  std::function<Status(std::string_view list)> list;
  // Called in the list's order, once per occurrence.
  std::function<Status(std::string_view piece)> piece;
  std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // in bytes
  std::function<bool()> cancelled;
};
// Sends one request to the head with this node's credential.
Result<std::string> ask_head(const ContentSource& source,
                             net::Method method,
                             std::string target,
                             std::string body);
// Reports to the head the digest of the image that a task runs in.
Status tell_image(const ContentSource& source, std::uint64_t task, const std::string& digest);
Status fetch_content(const ContentSource& source,
                     const std::string& digest,
                     const ContentSink& sink);

}  // namespace billow::agent
