// One connection into a job from this side: bytes between descriptors here and a WebSocket of the
// head, with back-pressure in both directions and each end of file passed on by itself.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "client/frame/connect.h"
#include "net/http/http_client.h"
#include "net/loop.h"

namespace billow::client {

struct TunnelEnds {
  int in = -1, out = -1;  // read from, written to; may be one socket
  bool socket = false;    // they are: ends of file are passed on by shutting one direction
};

class TunnelRelay : public std::enable_shared_from_this<TunnelRelay> {
 public:
  struct Callbacks {
    std::function<Status(const Json& open)> opened;  // the other end is there; an error ends it
    std::function<void(const std::string& trouble)> closed;  // once; empty: both sides ended well
  };
  // `target`: "/v1/jobs/12/tunnel?port=8080"
  static std::shared_ptr<TunnelRelay> start(net::Loop& loop,
                                            net::HttpClient& client,
                                            const HeadAddress& head,
                                            const std::string& target,
                                            TunnelEnds ends,
                                            Callbacks callbacks);
  void stop();

 private:
  TunnelRelay(net::Loop& loop, TunnelEnds ends, Callbacks callbacks)
      : loop_(loop), ends_(ends), callbacks_(std::move(callbacks)) {}
  void connected(Result<std::shared_ptr<net::WebSocket>> socket);
  void ask_why(const std::string& otherwise);
  void message(std::string_view data, bool binary);
  void read_here();
  void write_here();
  void watch();
  void finish(const std::string& trouble);
  void finish_after_rest(const std::string& trouble);  // no more data will arrive; what has arrived
                                                       // is written here first

  net::Loop& loop_;
  net::HttpClient* client_ = nullptr;
  net::ClientRequest request_;
  TunnelEnds ends_;
  Callbacks callbacks_;
  std::shared_ptr<net::HttpClient::Call> call_;
  std::shared_ptr<net::WebSocket> socket_;
  std::unique_ptr<net::FdWatch> both_;  // where in and out are one
  std::unique_ptr<net::FdWatch> in_, out_;
  std::string to_here_;
  bool open_ = false, ended_here_ = false, ended_there_ = false, shut_ = false, finishing_ = false,
       done_ = false;
  std::string trouble_;  // to be told once the rest is written
};

}  // namespace billow::client
