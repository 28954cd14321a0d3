// libFuzzer over the socket on which jobs talk to the agent about their files: lines, descriptors,
// and the states of kept files. The first byte chooses. A received descriptor is that of a plain
// file that can be written, whatever else was attached, and none stays open behind it.
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/content/file_socket.h"
#include "agent/content/staged_tree.h"
#include "base/check.h"
#include "process/passed_descriptors.h"

namespace {

using namespace billow;
namespace file_socket = billow::agent::file_socket;

struct Pair {
  Fd job, agent;
};
Pair connected() {
  int pair[2];
  BILLOW_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0,
               "sockets");
  return {Fd(pair[0]), Fd(pair[1])};
}

int lowest_free() {
  const Fd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  return next.get();
}

void lines(std::string_view bytes) {
  Pair pair = connected();
  (void)::send(pair.job.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  pair.job = Fd();
  for (int i = 0; i < 64; ++i) {
    const auto line = file_socket::receive_line(pair.agent.get());
    if (!line)
      break;
    BILLOW_CHECK(line->size() < file_socket::line_bytes_max, "a line is short");
    BILLOW_CHECK(line->find('\n') == std::string::npos, "a line is one");
  }
}

Fd open_one(unsigned char kind) {
  switch (kind % 8) {
    case 0:
      return Fd(::memfd_create("plain", MFD_CLOEXEC));
    case 1:
      return Fd(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    case 2:
      return Fd(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    case 3:
      return Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    case 4:
      return Fd(::open("/proc/self/exe", O_PATH | O_CLOEXEC));
    case 5:
      return Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    case 6: {
      Fd appending(::memfd_create("appending", MFD_CLOEXEC));
      (void)::fcntl(appending.get(), F_SETFL, O_APPEND);
      return appending;
    }
    default:
      return Fd(::eventfd(0, EFD_CLOEXEC));
  }
}

void descriptors(std::string_view bytes) {
  const int before = lowest_free();
  {
    Pair pair = connected();
    while (!bytes.empty()) {
      const std::size_t count = static_cast<unsigned char>(bytes[0]) % 4;
      bytes.remove_prefix(1);
      std::vector<Fd> open;
      std::vector<int> numbers;
      for (std::size_t i = 0; i < count && !bytes.empty(); ++i) {
        open.push_back(open_one(static_cast<unsigned char>(bytes[0])));
        bytes.remove_prefix(1);
        if (open.back())
          numbers.push_back(open.back().get());
      }
      char octet = 'f';
      const iovec part{&octet, 1};
      if (send_with_descriptors(pair.job.get(), {&part, 1}, numbers, MSG_DONTWAIT) != 1)
        break;
      const auto received = file_socket::receive_descriptor(pair.agent.get());
      if (!received)
        continue;
      struct stat info {};
      BILLOW_CHECK(::fstat(received->get(), &info) == 0 && S_ISREG(info.st_mode), "a plain file");
      BILLOW_CHECK((::fcntl(received->get(), F_GETFL) & O_ACCMODE) != O_RDONLY, "to be written");
      BILLOW_CHECK((::fcntl(received->get(), F_GETFD) & FD_CLOEXEC) != 0, "not for others");
      BILLOW_CHECK(!file_socket::may_fill(received->get(), {info.st_dev + 1, info.st_uid}),
                   "on the right device");
    }
  }
  BILLOW_CHECK(lowest_free() == before, "nothing stays open");
}

void states(std::string_view bytes) {
  const std::size_t count = bytes.size() < 2 ? 0 : static_cast<unsigned char>(bytes[0]) % 8;
  const auto read =
      agent::decode_states(bytes.substr(std::min<std::size_t>(bytes.size(), 1)), count);
  if (!read)
    return;
  BILLOW_CHECK(read->size() == count, "one for each entry");
  const auto again = agent::decode_states(agent::encode_states(*read), count);
  BILLOW_CHECK(again && *again == *read, "reads back as the same");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      lines(bytes);
      break;
    case 1:
      descriptors(bytes);
      break;
    default:
      states(bytes);
  }
  return 0;
}
