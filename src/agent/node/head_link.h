// The agent's connection to the head: dials, retries, and passes frames. Of several heads one
// leads; those that do not answer are skipped. A head that answers but does not know this node's
// credential for half a minute has removed the node.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/rng.h"
#include "net/address.h"
#include "net/http/certificate_keeper.h"
#include "net/http/http_client.h"
#include "net/http/node_credential.h"
#include "net/loop.h"
#include "net/tls.h"

namespace billow::agent {

class HeadLink {
 public:
  struct Options {
    std::string heads;  // "unix:/…", "http://…", "https://…"; several separated by commas
    std::shared_ptr<net::NodeCredential> credential;
    net::CertificatePlace certificate;
    std::string name;  // of the node
  };
  struct Callbacks {
    std::function<void()> connected;
    std::function<void(std::string_view frame)> frame;
    std::function<void()> disconnected;
    std::function<void()> removed;
  };
  static Result<std::unique_ptr<HeadLink>> create(net::Loop& loop,
                                                  Options options,
                                                  Callbacks callbacks);

  void dial();
  // The head that is being dialled or is connected.
  const net::Endpoint& endpoint() const { return endpoints_[head_at_ % endpoints_.size()]; }
  // What connections to the head show and trust. Safe from any thread.
  net::TlsClientOptions tls() const { return certificate_->tls(); }
  bool connected() const { return socket_ != nullptr; }
  bool removed() const { return removed_; }
  bool is_refused() const { return refused_since_.ns != 0; }  // the head does not know this node
  void send(std::string_view frame);  // dropped while there is no connection
  void close(int code, std::string_view reason);
  void welcomed() { attempts_ = 0; }  // the head accepted this node; redial quickly next time

 private:
  HeadLink(net::Loop& loop, Options options, Callbacks callbacks);
  void dial_certified();
  Status open_client();
  Duration patience_for_answer() const;
  void dialled(Result<std::shared_ptr<net::WebSocket>> socket);
  void redial();
  void disconnected();
  void refused(bool unknown_credential);
  void ask_time();

  net::Loop& loop_;
  Options options_;
  Callbacks callbacks_;
  Rng jitter_;
  std::vector<net::Endpoint> endpoints_;
  std::size_t head_at_ = 0;
  std::unique_ptr<net::HttpClient> client_;
  std::unique_ptr<net::CertificateKeeper> certificate_;
  std::shared_ptr<net::HttpClient::Call> call_;
  std::shared_ptr<net::WebSocket> socket_;
  net::Timer redial_;
  std::uint64_t attempts_ = 0;
  bool dialing_ = false, removed_ = false;
  bool stale_ = false;        // the client shows a certificate of before
  SteadyTime refused_since_;  // 0: the head knows this node or is unreachable
};

}  // namespace billow::agent
