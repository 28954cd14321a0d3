// A connection on the loop: incoming data is passed to its owner, outgoing data is queued and
// written as fast as the peer reads. Server connections, client calls and WebSockets own Streams;
// an upgrade to a WebSocket changes the owner.
//
// Invariants: incoming bytes are read into one buffer per thread, so an idle stream holds none.
// After close() the owner is not called again. The queue itself has no limit: each owner has its
// own and checks queued().
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include "net/loop.h"
#include "net/transport.h"

namespace billow::net {

class StreamOwner {
 public:
  virtual ~StreamOwner() = default;
  virtual void stream_data(std::string_view data) = 0;
  virtual void stream_eof() = 0;  // the peer sends nothing more but may still read
  virtual void stream_failed(std::string reason) = 0;  // the stream is closed
  virtual void stream_drained() = 0;                   // the queue has become empty
};

class Stream : public std::enable_shared_from_this<Stream> {
 public:
  Stream(Loop& loop, Transport transport, StreamOwner* owner);
  ~Stream();

  void start();  // starts with the TLS handshake, if any
  void set_owner(StreamOwner* owner) { owner_ = owner; }
  void send(std::string data, std::string more = {});
  // The same for bytes that the caller owns: only what the socket does not take at once is copied.
  void send_views(std::initializer_list<std::string_view> pieces);
  void pause_reading();
  void resume_reading();
  std::size_t queued() const { return queued_; }
  std::uint64_t bytes_written() const { return bytes_written_; }
  // Drops queued pieces whose sending has not begun; a partly written piece stays, so that the peer
  // never sees a truncated one.
  void drop_unsent();
  // When the queue is empty: half-close, then close() if `then_close`.
  void end_after_flush(bool then_close);
  // For an owner that leaves: writes what is queued, half-closes, drops what the peer still sends,
  // and closes when the peer has ended, or after this time. A connection that is closed with unread
  // bytes is reset, and a reset makes `kubectl port-forward` end altogether.
  void finish(Duration at_most);
  void close();
  bool open() const { return watch_ != nullptr; }
  bool peer_has_closed() const;  // asks the kernel, ahead of the loop
  // The same while reading is paused and the end is behind unread bytes. With `reset` only an end
  // in both directions counts.
  bool paused_peer_has_gone(bool reset) const;
  bool tls() const { return transport_.tls(); }
  PeerCertificatePtr peer_certificate() const { return transport_.peer_certificate(); }
  bool http2() const { return transport_.http2(); }
  int fd() const { return transport_.fd(); }
  SteadyTime last_write_progress() const { return last_write_progress_; }
  Loop& loop() { return loop_; }
  // Kept until the stream is destroyed: the server counts its connections with it.
  std::shared_ptr<void> token;

 private:
  void ready(bool readable, bool writable);
  bool do_handshake();
  void do_read();
  void do_write();
  void update_interest();
  void fail_with(std::string reason);

  Loop& loop_;
  Transport transport_;
  StreamOwner* owner_;
  std::unique_ptr<FdWatch> watch_;
  std::deque<std::string> queue_;
  std::size_t head_sent_ = 0;  // of queue_.front()
  std::size_t queued_ = 0;
  std::uint64_t bytes_written_ = 0;
  SteadyTime last_write_progress_;
  bool handshaken_;
  bool reading_ = true;
  bool eof_ = false;
  bool in_owners_call_ = false;
  bool read_wants_write_ = false;  // TLS only
  bool write_wants_read_ = false;  // TLS only
  bool end_requested_ = false;
  bool close_requested_ = false;
  bool ended_ = false;
  Timer finishing_;  // set: the loop keeps the stream until it is closed
};

}  // namespace billow::net
