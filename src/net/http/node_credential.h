// How a node proves who it is. Its credential is an Ed25519 key that never leaves the machine: each
// request carries the public key, the time, a random number and a signature over them and the
// request line, so that what is seen on the way serves no other request and no second time.
//
// The time is the head's: a machine whose clock is wrong learns the difference from the head
// (set_head_time). Agents of version 0.1, and the head's own agent, have a secret in the file
// instead, which is sent as a bearer token.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "net/http/http.h"

namespace billow::net {

inline constexpr std::string_view node_scheme = "Billow-Node ";
// A signature is accepted for this long before and after its time.
inline constexpr Duration node_signature_life = minutes(5);

class NodeCredential {
 public:
  explicit NodeCredential(std::string file) : file_(std::move(file)) {}

  // The value of the Authorization header for one request. Reads the file, which may be replaced
  // while the agent runs. Safe from any thread.
  Result<std::string> authorization(Method method, std::string_view target) const;
  // The head's Date header.
  void set_head_time(std::string_view http_date, WallTime now);
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  std::atomic<std::int64_t> ahead_s_{0};  // the head's clock against ours
};

// The parts of an Authorization header of this scheme.
struct NodeSignature {
  std::string key, nonce, signature;
  std::int64_t time_s = 0;
};
// The header for a request that is signed with a private key (PEM).
Result<std::string> sign_node_request(std::string_view private_pem,
                                      Method method,
                                      std::string_view target,
                                      std::int64_t time_s);
// Checks form and signature; whether the key is known, fresh and unused is for the caller.
Result<NodeSignature> read_node_signature(std::string_view header,
                                          Method method,
                                          std::string_view target);

}  // namespace billow::net
