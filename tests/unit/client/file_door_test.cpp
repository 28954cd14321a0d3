// Files of a client on the head's machine: both ends of the socket.
#include "client/request/file_door.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstddef>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/platform.h"
#include "files/pack.h"
#include "head/door/file_door.h"
#include "process/passed_descriptors.h"

namespace billow::client {
namespace {

class Door : public testing::Test {
 protected:
  Door() {
    char name[] = "/tmp/billow-door-XXXXXX";
    root_ = ::mkdtemp(name);
    store_ = std::move(*files::Store::open({.directory = root_ + "/store", .bytes_max = 4l << 30}));
    door_ = std::move(*head::FileDoor::open(*store_));
  }
  ~Door() override {
    door_.reset();
    (void)remove_tree(root_);
  }
  files::Undigested file(const std::string& name, const std::string& content) {
    const std::string path = root_ + "/" + name;
    EXPECT_TRUE(write_file_atomic(path, content));
    struct stat info {};
    EXPECT_EQ(::stat(path.c_str(), &info), 0);
    return {path, content.size(), platform::modified_ns(info), platform::changed_ns(info), {}};
  }
  FileDoor client(files::OwnerLimit limit = {}) {
    return FileDoor([this, limit]() -> Result<files::DoorTicket> {
      ++tickets_;
      return door_->grant("user:1", limit);
    });
  }

  std::string root_;
  std::unique_ptr<files::Store> store_;
  std::unique_ptr<head::FileDoor> door_;
  int tickets_ = 0;
};

TEST_F(Door, SmallAndLargeFilesArriveWithTheirDigests) {
  const std::string large = std::string(files::piece_bytes, 'a') + std::string(1000, 'b');
  std::vector<files::Undigested> files;
  for (int i = 0; i < 700; ++i)
    files.push_back(file("small" + std::to_string(i), "content " + std::to_string(i)));
  files.push_back(file("large", large));
  files.push_back(file("last", "end"));
  FileDoor door = client();
  const auto done = door.bring(files);
  ASSERT_TRUE(done && *done);
  for (int i = 0; i < 700; ++i)
    EXPECT_EQ(files[static_cast<std::size_t>(i)].pieces,
              std::vector<Sha256>{sha256("content " + std::to_string(i))});
  ASSERT_EQ(files[700].pieces.size(), 2u);
  EXPECT_EQ(*store_->read(files[700].pieces[0]) + *store_->read(files[700].pieces[1]), large);
  for (const files::Undigested& one : files)
    EXPECT_TRUE(store_->missing("user:1", one.pieces).empty());
  EXPECT_EQ(store_->missing("user:2", files[0].pieces).size(), 1u);
}

std::string varied(std::size_t size, unsigned seed) {
  std::string out(size, '\0');
  for (char& c : out)
    c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return out;
}

// Full pieces arrive together, whatever their number and neighbours; each begins at a page, and
// after another start of the head all are found.
TEST_F(Door, PiecesOfLargeFilesArriveTogether) {
  constexpr std::size_t full = files::piece_bytes;
  std::vector<files::Undigested> files;
  std::vector<std::string> contents;
  for (const std::size_t size :
       {full, 2 * full, 7 * full, 3 * full + 1, full / 2, std::size_t{9}}) {
    contents.push_back(varied(size, static_cast<unsigned>(size)));
    files.push_back(file("f" + std::to_string(files.size()), contents.back()));
  }
  FileDoor door = client();
  const auto done = door.bring(files);
  ASSERT_TRUE(done && *done);
  door_.reset();
  store_ = std::move(*files::Store::open({.directory = root_ + "/store", .bytes_max = 4l << 30}));
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    std::string all;
    for (const Sha256& piece : files[i].pieces) {
      all += store_->read(piece).value_or("");
      if (files[i].size >= full / 2) {
        EXPECT_EQ(store_->locate(piece)->offset % files::large_pack_begin, 0u);
      }
    }
    EXPECT_TRUE(all == contents[i]) << i;
    EXPECT_TRUE(store_->missing("user:1", files[i].pieces).empty());
    bytes += files[i].size;
  }
  EXPECT_EQ(store_->bytes_of("user:1"), bytes);
}

// A client that asks for pieces of which one cannot be read hears of all.
TEST_F(Door, OfSeveralPiecesOnlyTheBadOneFails) {
  constexpr std::size_t full = files::piece_bytes;
  std::vector<files::Undigested> files;
  for (unsigned i = 0; i < 8; ++i)
    files.push_back(file("f" + std::to_string(i), varied(i == 1 ? full - 1 : full, i)));
  files[1].size = full;
  FileDoor door = client();
  const auto done = door.bring(files);
  ASSERT_TRUE(done);
  EXPECT_FALSE(*done) << "the files are sent another way";
  EXPECT_TRUE(store_->has(sha256(varied(full, 0)))) << "of the same two";
  EXPECT_EQ(store_->bytes() % (files::large_pack_begin + full), 0u);
  EXPECT_LE(store_->bytes(), 7 * (files::large_pack_begin + full));
}

TEST_F(Door, ALimitHoldsForSeveralPiecesToo) {
  constexpr std::size_t full = files::piece_bytes;
  std::vector<files::Undigested> files{file("large", varied(8 * full, 3))};
  FileDoor door = client({full, [](std::uint64_t) {
                            return Error{Code::exhausted, "over the limit", ""};
                          }});
  const auto done = door.bring(files);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::exhausted);
  EXPECT_LE(store_->bytes_of("user:1"), full);
}

// The second time nothing is written, but for what has changed.
TEST_F(Door, OfALargeFileThatChangedOnlyNewPiecesAreKept) {
  constexpr std::size_t full = files::piece_bytes, count = 70;
  std::string content = varied(count * full, 4);
  std::vector<files::Undigested> files{file("large", content)};
  FileDoor door = client();
  ASSERT_TRUE(*door.bring(files));
  EXPECT_EQ(store_->bytes(), count * (files::large_pack_begin + full));
  content[30 * full] ^= 1;
  files = {file("large", content)};
  ASSERT_TRUE(*door.bring(files));
  EXPECT_EQ(store_->bytes(), (count + 1) * (files::large_pack_begin + full));
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_TRUE(*store_->read(files[0].pieces[i]) == content.substr(i * full, full)) << i;
}

// A ticket is good for some of it; the client asks for more.
TEST_F(Door, TicketsAreRenewed) {
  std::vector<files::Undigested> files;
  const std::string path = root_ + "/sparse";
  ASSERT_TRUE(write_file_atomic(path, ""));
  const std::uint64_t size = 3 * files::door_bytes_per_ticket;
  ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(size)), 0);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  files.push_back({path, size, platform::modified_ns(info), platform::changed_ns(info), {}});
  FileDoor door = client();
  const auto done = door.bring(files);
  ASSERT_TRUE(done && *done);
  EXPECT_GE(tickets_, 3);
  EXPECT_EQ(files[0].pieces.size(), size / files::piece_bytes);
  EXPECT_LT(store_->bytes(), 2 * files::piece_bytes + 1000);  // all pieces are the same
}

TEST_F(Door, AChangedFileGoesAnotherWay) {
  std::vector<files::Undigested> files{file("large", std::string(1 << 20, 'x'))};
  files[0].mtime_ns -= 1;
  FileDoor door = client();
  auto done = door.bring(files);
  ASSERT_TRUE(done);
  EXPECT_FALSE(*done);
  EXPECT_TRUE(files[0].pieces.empty());
  files = {file("shorter", "abc")};
  files[0].size = 10;
  done = door.bring(files);
  ASSERT_TRUE(done);
  EXPECT_FALSE(*done);
}

TEST_F(Door, ALimitIsAnErrorAndNothingIsKept) {
  std::vector<files::Undigested> files{file("a", std::string(1000, 'x'))};
  FileDoor door = client({100, [](std::uint64_t) {
                            return Error{Code::exhausted, "over the limit", "remove some"};
                          }});
  const auto done = door.bring(files);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::exhausted);
  EXPECT_EQ(done.error().message, "over the limit");
  EXPECT_EQ(done.error().hint, "remove some");
  EXPECT_EQ(store_->bytes(), 0u);
}

TEST_F(Door, WithoutAValidTicketNothingIsTaken) {
  std::vector<files::Undigested> files{file("a", "content")};
  FileDoor wrong([&]() -> Result<files::DoorTicket> {
    return files::DoorTicket{door_->grant("user:1", {}).socket, std::string(32, 'f')};
  });
  const auto done = wrong.bring(files);
  ASSERT_TRUE(done);
  EXPECT_FALSE(*done);
  // A ticket is good once.
  const files::DoorTicket ticket = door_->grant("user:1", {});
  FileDoor twice([&]() -> Result<files::DoorTicket> { return ticket; });
  EXPECT_TRUE(*twice.bring(files));
  files = {file("b", "other content")};
  EXPECT_FALSE(*twice.bring(files));
  EXPECT_FALSE(store_->has(sha256("other content")));
}

// The name of an ended head's socket is free for anybody.
TEST_F(Door, NothingIsSentToASocketOfAnotherUser) {
  std::vector<files::Undigested> files{file("secret", std::string(1 << 20, 's'))};
  FileDoor other([&]() -> Result<files::DoorTicket> {
    files::DoorTicket ticket = door_->grant("user:1", {});
    ticket.uid += 1;
    return ticket;
  });
  const auto done = other.bring(files);
  ASSERT_TRUE(done);
  EXPECT_FALSE(*done);
  EXPECT_EQ(store_->bytes(), 0u);
  EXPECT_EQ(other.sent_bytes(), 0u);
}

Fd connected(const files::DoorTicket& ticket) {
  Fd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, ticket.socket.data(), ticket.socket.size());
  EXPECT_EQ(
      ::connect(out.get(), reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + ticket.socket.size())),
      0);
  return out;
}

// An octet now and then does not hold a thread of the head's.
TEST_F(Door, ATicketThatComesSlowlyIsNotWaitedFor) {
  const files::DoorTicket ticket = door_->grant("user:1", {});
  const Fd socket = connected(ticket);
  const SteadyTime began = system_clock().steady();
  bool closed = false;
  for (std::size_t i = 0; !closed && i < 30; ++i) {
    (void)::send(socket.get(), &ticket.ticket[i], 1, MSG_NOSIGNAL);
    pollfd ended{socket.get(), POLLIN, 0};
    closed = ::poll(&ended, 1, 400) > 0;
  }
  EXPECT_TRUE(closed);
  EXPECT_LT((system_clock().steady() - began).seconds(), 9.0);
}

std::size_t open_files() {
  std::size_t n = 0;
  for ([[maybe_unused]] const auto& one : std::filesystem::directory_iterator("/proc/self/fd"))
    ++n;
  return n;
}

TEST_F(Door, DescriptorsBeyondTheFirstAreNotKept) {
  const std::string path = file("large", std::string(1000, 'x')).path;
  const Fd sent(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const files::DoorTicket ticket = door_->grant("user:1", {});
  const Fd socket = connected(ticket);
  ASSERT_EQ(::send(socket.get(), ticket.ticket.data(), ticket.ticket.size(), 0), 32);
  const auto before = open_files();
  for (int i = 0; i < 20; ++i) {
    files::DoorRequest request{files::DoorRequest::piece, 1000, 0};
    const iovec part{&request, sizeof request};
    const int two[] = {sent.get(), sent.get()};
    ASSERT_EQ(send_with_descriptors(socket.get(), {&part, 1}, two),
              static_cast<ssize_t>(sizeof request));
    char answer[sizeof(files::DoorAnswer) + 32];
    ASSERT_EQ(::recv(socket.get(), answer, sizeof answer, MSG_WAITALL),
              static_cast<ssize_t>(sizeof answer));
  }
  EXPECT_LE(open_files(), before + 2);
}

}  // namespace
}  // namespace billow::client
