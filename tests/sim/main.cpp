// ./dev sim: more seeds than CI has time for, or one seed with its full trace.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "base/text.h"
#include "world.h"

namespace {

volatile unsigned long long current_seed = 0;

// An assertion of the product ends the process; the seed must still be printed.
void on_abort(int) {
  char text[128];
  const int n = std::snprintf(text, sizeof(text),
                              "the process aborted in seed %llu\nagain: ./dev sim --seed %llu\n",
                              current_seed, current_seed);
  (void)!::write(2, text, static_cast<std::size_t>(n));
}

struct Arguments {
  std::uint64_t seeds = 10'000, first = 1;
  std::int64_t minutes = 0;  // 0: no limit
  bool one = false;
};

billow::Result<Arguments> parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    const auto value = billow::parse_int(i + 1 < argc ? argv[i + 1] : "", 0, INT64_MAX);
    if (!value)
      return billow::fail(billow::Code::invalid, name + " needs a number");
    if (name == "--seeds")
      out.seeds = static_cast<std::uint64_t>(*value);
    else if (name == "--minutes")
      out.minutes = *value;
    else if (name == "--from")
      out.first = static_cast<std::uint64_t>(*value);
    else if (name == "--seed") {
      out.first = static_cast<std::uint64_t>(*value);
      out.seeds = 1;
      out.one = true;
    } else
      return billow::fail(billow::Code::invalid, "unknown option " + name);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const auto arguments = parse(argc, argv);
  if (!arguments) {
    std::fprintf(stderr,
                 "%s\nusage: billow-sim [--seeds N] [--minutes M] [--from FIRST] | --seed S\n",
                 arguments.error().message.c_str());
    return 2;
  }
  ::signal(SIGABRT, on_abort);
  billow::configure_log({.level = billow::LogLevel::error});
  using Steady = std::chrono::steady_clock;
  const auto began = Steady::now();
  auto told = began;
  std::uint64_t done = 0, failed = 0;
  std::int64_t steps = 0;
  double virtual_s = 0;
  const auto elapsed_s = [&] {
    return std::chrono::duration<double>(Steady::now() - began).count();
  };
  for (std::uint64_t seed = arguments->first;
       done < arguments->seeds &&
       (arguments->minutes == 0 || elapsed_s() < 60.0 * static_cast<double>(arguments->minutes));
       ++seed) {
    current_seed = seed;
    const auto outcome = billow::sim::simulate(seed, billow::sim::Mutation::none, arguments->one);
    ++done;
    std::printf("%s", outcome.story.c_str());
    steps += outcome.steps;
    virtual_s += outcome.virtual_s;
    if (outcome.failure) {
      std::printf("%s", outcome.failure->c_str());
      if (++failed >= 20)
        break;
    }
    if (Steady::now() - told > std::chrono::seconds(5)) {
      told = Steady::now();
      std::fprintf(stderr, "%llu seeds, %.0f/s, %lld events, %.1f virtual days, %llu failed\n",
                   static_cast<unsigned long long>(done), static_cast<double>(done) / elapsed_s(),
                   static_cast<long long>(steps), virtual_s / 86400,
                   static_cast<unsigned long long>(failed));
    }
  }
  std::printf(
      "%llu seeds from %llu: %llu failed; %lld events, %.1f virtual days in %.1f s (%.0f "
      "seeds/s)\n",
      static_cast<unsigned long long>(done), static_cast<unsigned long long>(arguments->first),
      static_cast<unsigned long long>(failed), static_cast<long long>(steps), virtual_s / 86400,
      elapsed_s(), static_cast<double>(done) / elapsed_s());
  return failed ? 1 : 0;
}
