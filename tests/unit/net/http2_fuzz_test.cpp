// Mutated frames of clients and servers, for a bounded time; a failure prints the seed that repeats
// it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/support/http2_drive.h"
#include "tests/support/http2_frames.h"

namespace billow::net {
namespace {

namespace frames = http2_frames;

// A run of frames, some of them changed.
std::string some_frames(Rng& rng, bool server) {
  std::string out = server ? frames::preface() : frames::frame(frames::settings, 0, 0, "");
  const auto count = 1 + rng.below(12);
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto id = static_cast<std::uint32_t>(1 + 2 * rng.below(5));
    const auto text = std::string(rng.below(200), 'd');
    frames::Fields fields =
        server ? frames::request("POST", "/a") : frames::Fields{{":status", "200"}};
    if (rng.chance(0.5))
      fields.emplace_back("content-length", std::to_string(rng.below(200)));
    if (rng.chance(0.3))
      fields.emplace_back("x-some", "value");
    std::string one;
    switch (rng.below(9)) {
      case 0:
      case 1:
      case 2:
        one = frames::head(id, fields, rng.chance(0.5));
        break;
      case 3:
      case 4:
        one = frames::frame(frames::data, rng.chance(0.5) ? frames::end_stream : 0, id, text);
        break;
      case 5:
        one = frames::frame(frames::rst_stream, 0, id, frames::number(8));
        break;
      case 6:
        one = frames::frame(frames::window_update, 0, rng.chance(0.5) ? id : 0,
                            frames::number(1 + static_cast<std::uint32_t>(rng.below(100'000))));
        break;
      case 7:
        one = frames::head(id, {{"x-trailer", "1"}}, true);
        break;
      default:
        one = frames::frame(frames::headers, 0, id, frames::block(fields)) +
              frames::frame(frames::continuation, frames::end_headers, id, "");
    }
    if (rng.chance(0.3) && !one.empty())
      one[rng.below(one.size())] = static_cast<char>(rng.below(256));
    if (rng.chance(0.05))
      one.resize(rng.below(one.size() + 1));
    out += one;
  }
  return out;
}

TEST(Http2Fuzz, MutatedFramesBreakNoRule) {
  const char* longer = std::getenv("BILLOW_FUZZ_SECONDS");
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(longer ? std::atoi(longer) : 2);
  const char* given = std::getenv("BILLOW_FUZZ_SEED");
  std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : 1;
  std::size_t heads = 0, played = 0;
  do {
    Rng rng(seed);
    const bool server = seed % 3 != 0;
    const std::string bytes = some_frames(rng, server);
    Http2Drive drive(server ? Http2Session::Role::server : Http2Session::Role::client);
    const std::string broken = drive.play(bytes, seed);
    ASSERT_EQ(broken, "") << "BILLOW_FUZZ_SEED=" << seed;
    heads += drive.heads();
    ++played;
    ++seed;
  } while (!given && std::chrono::steady_clock::now() < until);
  EXPECT_GT(heads, given ? 0u : played / 4) << "the frames no longer make messages";
}

}  // namespace
}  // namespace billow::net
