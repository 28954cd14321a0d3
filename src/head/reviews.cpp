#include "head/reviews.h"

#include <fmt/format.h>

#include "advise/review.h"
#include "base/file.h"
#include "base/log.h"

namespace billow::head {
namespace {

constexpr std::size_t leases_max = 2'000'000, page_items = 1000;

std::string path_of(const std::string& data_dir, const std::string& month) {
  return data_dir + "/reviews/" + month + ".json";
}

Result<advise::Review> make(const Queries& queries,
                            const std::string& data_dir,
                            const advise::Period& month,
                            WallTime now) {
  auto spans = used_spans(queries, {static_cast<std::int64_t>(month.from_s * 1e9)},
                          {static_cast<std::int64_t>(month.to_s * 1e9)});
  if (!spans)
    return pass(spans.error());
  advise::ReviewInput input{.usage = advise::usage_of(*spans, month.from_s, month.to_s),
                            .period = month.name,
                            .price_changes = {},
                            .market = {},
                            .now = now};
  auto catalogue = Catalogue::embedded();
  if (const std::string prices = data_dir + "/prices.csv"; file_exists(prices)) {
    auto text = read_file(prices);
    if (!text)
      return pass(text.error());
    auto report = catalogue.update(*text);
    if (!report)
      return pass(report.error(), prices);
    input.price_changes = std::move(report->changed);
  }
  auto made = advise::review(input, catalogue);
  if (made.gpu_hours <= 0)
    return made;
  if (auto there = make_directories(data_dir + "/reviews", 0700); !there)
    return pass(there.error());
  if (auto kept = write_file_atomic(path_of(data_dir, month.name),
                                    advise::review_json(made).dump_pretty() + "\n", 0600, true);
      !kept)
    return pass(kept.error());
  return made;
}

}  // namespace

Result<std::vector<advise::UsedSpan>> used_spans(const Queries& queries,
                                                 WallTime from,
                                                 WallTime before) {
  std::vector<advise::UsedSpan> spans;
  LeaseQuery query;
  query.from = from;
  query.before = before;
  query.limit = page_items;
  while (spans.size() < leases_max) {
    auto page = queries.leases(query);
    if (!page)
      return pass(page.error());
    for (const LeaseRow& lease : *page) {
      const WallTime to = lease.to ? lease.to : before;
      if (lease.gpu_type.empty() || lease.milli <= 0 || !(lease.from < to))
        continue;
      spans.push_back({lease.gpu_type, static_cast<double>(lease.from.ns) / 1e9,
                       static_cast<double>(to.ns) / 1e9, static_cast<double>(lease.milli) / 1000,
                       static_cast<double>(lease.charge.value) / 1e9});
    }
    if (page->size() < page_items)
      break;
    query.after = page->back().id;
  }
  return spans;
}

void Reviews::look() {
  const WallTime now = options_.clock->wall();
  const advise::Period month = advise::month_before(now);
  if (busy_ || month.name == looked_at_ || file_exists(path_of(options_.data_dir, month.name)))
    return;
  busy_ = true;
  const Status queued = options_.workers->submit(
      [queries = options_.queries, data_dir = options_.data_dir, month,
       now]() -> Result<advise::Review> { return make(*queries, data_dir, month, now); },
      [this, month](Result<advise::Review> made) {
        busy_ = false;
        if (!made)
          return log_warn("the review of {} could not be made: {}", month.name,
                          made.error().message);  // tried again at the next look
        looked_at_ = month.name;
        if (made->gpu_hours <= 0)
          return;
        log_info("{}", made->summary());
        if (options_.made)
          options_.made(*made);
      });
  if (!queued)
    busy_ = false;
}

}  // namespace billow::head
