// The monthly review, made by the head itself: when a month has ended, its leases and the prices of
// the day become a review, kept in reviews/YYYY-MM.json of the data directory and passed on for
// delivery. The arithmetic is advise/review.
//
// Idempotent: a review that lies in its file is not made again, so a restart on the 1st sends
// nothing twice. A month without a lease has no review.
#pragma once

#include <functional>
#include <string>

#include "advise/review.h"
#include "net/workers.h"
#include "store/queries.h"

namespace billow::head {

class Reviews {
 public:
  struct Options {
    net::Workers* workers = nullptr;
    const Queries* queries = nullptr;
    const Clock* clock = nullptr;
    std::string data_dir;
    std::function<void(const advise::Review&)> made;  // on the loop, once for each review
  };
  explicit Reviews(Options options) : options_(std::move(options)) {}

  void look();  // now and then; an hour is often enough

 private:
  Options options_;
  std::string looked_at_;  // the month reviewed since this head started
  bool busy_ = false;
};

// What the leases of a period used; reads page by page. For a worker.
Result<std::vector<advise::UsedSpan>> used_spans(const Queries& queries,
                                                 WallTime from,
                                                 WallTime before);

}  // namespace billow::head
