#include "net/stream.h"
#include "net/sockets.h"
#include "net/wipe.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace billow::net {
namespace {
constexpr std::size_t read_bytes_max = 64 << 10;
constexpr int tls_reads_per_wakeup_max = 8;  // then other streams get a turn
constexpr int pieces_per_write_max = 16;
}  // namespace

Stream::Stream(Loop& loop, Transport transport, StreamOwner* owner)
    : loop_(loop),
      transport_(std::move(transport)),
      owner_(owner),
      last_write_progress_(loop.steady()),
      handshaken_(!transport_.tls()) {}

Stream::~Stream() {
  finishing_.cancel();  // the loop no longer keeps it
  close();
}

void Stream::start() {
  watch_ = loop_.watch(transport_.fd(), [this](bool readable, bool writable) {
    const auto keep = shared_from_this();
    ready(readable, writable);
  });
  // A TLS client sends first.
  in_owners_call_ = true;
  const bool through = handshaken_ || do_handshake();
  in_owners_call_ = false;
  if (through)
    update_interest();
}

void Stream::close() {
  watch_.reset();
  owner_ = nullptr;
  transport_.close();
  if (!finishing_)
    return;
  finishing_.cancel();
  loop_.let_go(this);
}

void Stream::finish(Duration at_most) {
  owner_ = nullptr;
  if (!open() || finishing_)
    return;
  loop_.keep(shared_from_this());
  finishing_ = loop_.after(at_most, [this] { close(); });
  resume_reading();
  end_after_flush(true);
}

bool Stream::peer_has_closed() const {
  char byte;
  return !open() || ::recv(transport_.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool Stream::paused_peer_has_gone(bool reset) const {
  if (!open() || reading_)
    return false;
  pollfd p{transport_.fd(), reset ? short{0} : sockets::peer_ended_event(), 0};
  return ::poll(&p, 1, 0) == 1;  // POLLERR and POLLHUP are always reported
}

// An owner inside a call (send, start) learns of a failure after that call, never during it.
void Stream::fail_with(std::string reason) {
  if (!owner_)
    return close();
  watch_.reset();
  transport_.close();
  if (!in_owners_call_)
    return owner_->stream_failed(std::move(reason));
  loop_.post([self = shared_from_this(), reason = std::move(reason)] {
    if (self->owner_)
      self->owner_->stream_failed(reason);
  });
}

// False while the handshake continues or if it failed.
bool Stream::do_handshake() {
  const auto result = transport_.handshake();
  switch (result.state) {
    case Io::done:
      handshaken_ = true;
      return true;
    case Io::want_read:
      watch_->want(true, false);
      return false;
    case Io::want_write:
      watch_->want(false, true);
      return false;
    case Io::closed:
      fail_with("the connection was closed during the TLS handshake");
      return false;
    case Io::failed:
      fail_with("TLS: " + transport_.error());
      return false;
  }
  return false;
}

void Stream::ready(bool readable, bool writable) {
  if (!open())
    return;
  if (!handshaken_) {
    if (!do_handshake())
      return;
    readable = true;  // the peer's first data may be in the same record
    writable = true;
  }
  if (!queue_.empty() && (writable || write_wants_read_)) {
    do_write();
    if (open() && queue_.empty() && owner_)
      owner_->stream_drained();
  }
  if (open() && ((readable && reading_) || (writable && read_wants_write_)))
    do_read();
  if (open())
    update_interest();
}

void Stream::do_read() {
  static thread_local char buffer[read_bytes_max];
  read_wants_write_ = false;
  for (int i = 0; open() && reading_ && !eof_; ++i) {
    const auto result = transport_.read(buffer, sizeof buffer);
    switch (result.state) {
      case Io::done:
        if (owner_)
          owner_->stream_data({buffer, result.bytes});
        wipe_used(buffer, result.bytes);
        // Without TLS the kernel reports further data. It does not know of bytes that are already
        // decrypted, so TLS is asked again.
        if (!transport_.tls())
          return;
        if (i + 1 < tls_reads_per_wakeup_max)
          continue;
        loop_.post([self = shared_from_this()] {
          if (self->open())
            self->ready(true, false);
        });
        return;
      case Io::want_read:
        return;
      case Io::want_write:
        read_wants_write_ = true;
        return;
      case Io::closed:
        eof_ = true;
        if (owner_)
          owner_->stream_eof();
        else if (ended_ && close_requested_)
          close();
        return;
      case Io::failed:
        fail_with(transport_.error());
        return;
    }
  }
}

void Stream::send(std::string data, std::string more) {
  if (!open() || ended_)
    return;
  const bool idle = queue_.empty();
  queued_ += data.size() + more.size();
  if (!data.empty())
    queue_.push_back(std::move(data));
  if (!more.empty())
    queue_.push_back(std::move(more));
  if (idle)
    last_write_progress_ = loop_.steady();
  // Most answers fit into the socket's buffer: writing now saves a pass through the reactor.
  if (idle && handshaken_) {
    in_owners_call_ = true;
    do_write();
    in_owners_call_ = false;
    if (open())
      update_interest();
  }
}

void Stream::send_views(std::initializer_list<std::string_view> views) {
  if (!open() || ended_)
    return;
  std::size_t taken = 0;
  if (queue_.empty() && handshaken_ && !transport_.tls()) {
    iovec pieces[pieces_per_write_max];
    int count = 0;
    for (const auto view : views)
      if (!view.empty() && count < pieces_per_write_max)
        pieces[count++] = {const_cast<char*>(view.data()), view.size()};
    if (count == 0)
      return;
    const auto result = transport_.write(pieces, count);
    if (result.state == Io::done) {
      taken = result.bytes;
      bytes_written_ += taken;
      last_write_progress_ = loop_.steady();
    } else if (result.state != Io::want_write) {
      in_owners_call_ = true;
      fail_with(result.state == Io::closed ? "the connection was closed" : transport_.error());
      in_owners_call_ = false;
      return;
    }
  }
  std::string rest;
  for (const auto view : views) {
    const std::size_t skip = std::min(taken, view.size());
    taken -= skip;
    rest.append(view.substr(skip));
  }
  if (!rest.empty())
    send(std::move(rest));
}

void Stream::do_write() {
  write_wants_read_ = false;
  while (open() && !queue_.empty()) {
    iovec pieces[pieces_per_write_max];
    int count = 0;
    for (auto& piece : queue_) {
      if (count == pieces_per_write_max)
        break;
      const std::size_t skip = count == 0 ? head_sent_ : 0;
      pieces[count++] = {piece.data() + skip, piece.size() - skip};
    }
    const auto result = transport_.write(pieces, count);
    if (result.state == Io::want_write)
      return;
    if (result.state == Io::want_read) {
      write_wants_read_ = true;
      return;
    }
    if (result.state != Io::done) {
      fail_with(result.state == Io::closed ? "the connection was closed" : transport_.error());
      return;
    }
    last_write_progress_ = loop_.steady();
    queued_ -= result.bytes;
    bytes_written_ += result.bytes;
    std::size_t sent = result.bytes;
    while (sent > 0) {
      const std::size_t left = queue_.front().size() - head_sent_;
      if (sent < left) {
        head_sent_ += sent;
        break;
      }
      sent -= left;
      head_sent_ = 0;
      queue_.pop_front();
    }
  }
  if (!open())
    return;
  if (end_requested_ && !ended_) {
    ended_ = true;
    transport_.end_writing();
    if (close_requested_ && (eof_ || !finishing_))
      close();
  }
}

void Stream::drop_unsent() {
  const std::size_t keep = head_sent_ > 0 ? 1 : 0;
  while (queue_.size() > keep) {
    queued_ -= queue_.back().size();
    queue_.pop_back();
  }
}

void Stream::end_after_flush(bool then_close) {
  end_requested_ = true;
  close_requested_ = then_close;
  if (queue_.empty() && open())
    do_write();
}

void Stream::pause_reading() {
  reading_ = false;
  if (open() && handshaken_)
    update_interest();
}

void Stream::resume_reading() {
  if (reading_)
    return;
  reading_ = true;
  if (!open() || !handshaken_)
    return;
  update_interest();
  if (transport_.tls())
    loop_.post([self = shared_from_this()] {
      if (self->open())
        self->ready(true, false);
    });
}

void Stream::update_interest() {
  const bool read = (reading_ && !eof_) || write_wants_read_;
  const bool write = !queue_.empty() || read_wants_write_;
  watch_->want(read, write && !write_wants_read_);
}

}  // namespace billow::net
