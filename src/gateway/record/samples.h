// Samples: a part of the requests and answers of an endpoint, with their bodies, as lines of JSON
// in a bucket. For users who want to see requests to a model and its answers.
//
// - A request never waits for a sample: it is collected in memory and sent by a thread of its own.
// - Everything is bounded: 64 KiB of each body, and 16 MiB of samples that are collected or wait to
//   be sent. What does not fit is dropped and counted.
// - Of the header fields only those of a short list are kept, so that no credential is; a key is
//   named, never shown. The query of a target is left out, because it may hold secrets, and keys of
//   endpoints in bodies are blanked.
// - A batch that the bucket does not take is sent again. What has not been sent when the gateway
//   ends is lost.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gateway/proxy.h"
#include "net/workers.h"
#include "s3/objects.h"

namespace billow::gateway {

class Samples {
 public:
  struct Options {
    std::string url;  // "s3://bucket/prefix"
    std::function<Result<s3::Access>()> access;
    std::string gateway;  // distinguishes gateways that share the bucket
    std::uint64_t seed = 0;
    Duration every = seconds(5);  // between two batches of an endpoint
  };
  static Result<std::unique_ptr<Samples>> create(net::Loop& loop, Options options);

  // Begins a sample with the given chance, in thousandths. Null: this request is none.
  std::shared_ptr<Sample> begin(std::uint32_t part);
  // The request has ended.
  void add(const Front& front, std::string_view endpoint, End end, SteadyTime now);
  void tick(SteadyTime now);
  std::uint64_t sent() const {
    const std::lock_guard lock(mutex_);
    return sent_;
  }
  std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

 private:
  struct Batch {
    std::string key, text;
    std::uint64_t samples = 0;
  };
  struct Open {
    std::string text;
    std::uint64_t samples = 0;
    SteadyTime since;
  };
  Samples(net::Loop& loop, Options options, s3::Place place);
  void close(const std::string& endpoint, Open& open);
  void send_next();
  void sent(const Status& result);

  net::Loop& loop_;
  mutable std::mutex mutex_;  // for what follows: requests end on several loops
  Options options_;
  s3::Place place_;
  std::uint64_t random_;
  std::map<std::string, Open, std::less<>> open_;  // by endpoint
  std::vector<Batch> waiting_;                     // the first is being sent
  bool sending_ = false;
  SteadyTime again_at_, next_warning_;
  std::shared_ptr<std::atomic<std::size_t>> collected_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::size_t bytes_ = 0;  // of open and waiting batches
  std::uint64_t sent_ = 0, dropped_ = 0, number_ = 0;
  std::unique_ptr<net::Workers> sender_;
};

// One sample as a line of JSON. Bodies that are not UTF-8 are in base64.
std::string sample_line(const Front& front, std::string_view endpoint, End end, SteadyTime now);

}  // namespace billow::gateway
