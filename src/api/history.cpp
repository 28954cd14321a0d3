// The routes of what was: series of a GPU, of the fleet, of a job with what it says about itself;
// and draining one GPU. Points that nothing is known about are null, never zero.
#include <cmath>

#include <fmt/format.h>

#include "api/call.h"
#include "base/limits.h"
#include "base/text.h"
#include "view/finding.h"

namespace billow::api::history {
namespace {

constexpr std::size_t points_default = 300, points_max = 2000;

template <class Columns, class Point>
Json series_document(
    WallTime from, Duration step, const Columns& columns, std::size_t count, Point point) {
  Json series = Json::object();
  std::vector<Json> lists(columns.size(), Json::array());
  for (std::size_t i = 0; i < count; ++i) {
    const auto values = point(i);
    for (std::size_t c = 0; c < columns.size(); ++c)
      lists[c].push(std::isnan(values[c])
                        ? Json()
                        : Json(std::round(values[c] * columns[c].scale * 1000) / 1000));
  }
  for (std::size_t c = 0; c < columns.size(); ++c)
    series.set(columns[c].name, std::move(lists[c]));
  return Json::object({{"from", format_utc(from)},
                       {"from_ms", from.ns / 1'000'000},
                       {"step_s", step.seconds()},
                       {"points", count},
                       {"series", std::move(series)}});
}

struct HistoryWindow {
  WallTime from, to;
  std::size_t points = points_default;
};
// ?span_s=3600 (up to now), or from_ms and to_ms (also from and to); ?points=.
Result<HistoryWindow> history_window_of(const CallPtr& call) {
  const auto& request = call->request();
  const auto number = [&](const char* name, std::int64_t low, std::int64_t high,
                          std::int64_t fallback) -> Result<std::int64_t> {
    if (request.param(name).empty())
      return fallback;
    auto n = parse_int(request.param(name), low, high);
    if (!n)
      return fail(Code::invalid, fmt::format("{}: {}", name, n.error().message));
    return *n;
  };
  const std::int64_t now = call->host.now().ns / 1'000'000;
  const std::int64_t span = BILLOW_TRY(number("span_s", 10, 40 * 86400, 3600));
  const char* to_name = request.has_param("to") ? "to" : "to_ms";
  const char* from_name = request.has_param("from") ? "from" : "from_ms";
  const std::int64_t to = BILLOW_TRY(number(to_name, 0, INT64_MAX / 1'000'000, now));
  const std::int64_t from =
      BILLOW_TRY(number(from_name, 0, INT64_MAX / 1'000'000, to - span * 1000));
  const std::int64_t points = BILLOW_TRY(number("points", 1, static_cast<std::int64_t>(points_max),
                                                static_cast<std::int64_t>(points_default)));
  if (from > to)
    return fail(Code::invalid, "from_ms is after to_ms");
  return HistoryWindow{{from * 1'000'000}, {to * 1'000'000}, static_cast<std::size_t>(points)};
}

template <class Columns>
void answer_series(const CallPtr& call, const std::string& key, const Columns& columns) {
  const auto window = history_window_of(call);
  if (!window)
    return call->fail(window.error());
  const Status queued = call->host.workers().submit(
      [&history = call->host.history(), key, w = *window] {
        return history.read(key, w.from, w.to, w.points);
      },
      [call, &columns](Result<SeriesAnswer> answer) {
        if (!answer)
          return call->fail(answer.error());
        call->reply(200, series_document(answer->from, answer->step, columns, answer->points.size(),
                                         [&](std::size_t i) { return answer->points[i]; }));
      });
  if (!queued)
    call->fail(queued.error());
}

struct Place {
  const Node* node = nullptr;
  const NodeGpu* gpu = nullptr;
};
Place place_asked(const CallPtr& call) {
  Place place;
  place.node = call->host.state().node_by_name(call->parts[0]);
  const auto index = parse_int(call->parts[1], 0, 1023);
  if (place.node && index)
    for (const NodeGpu& gpu : place.node->offer.gpus)
      if (gpu.index == *index)
        place.gpu = &gpu;
  if (!place.gpu)
    call->fail({Code::not_found,
                place.node ? fmt::format("node {1} has no GPU {0}", call->parts[1], call->parts[0])
                           : fmt::format("there is no node \"{}\"", call->parts[0]),
                place.node ? fmt::format("see `billow nodes {} -g`", call->parts[0])
                           : "see `billow nodes`"});
  return place;
}

void reply_job(const CallPtr& call, const Json& document, const JobSeries& series) {
  Json out = series_document(series.begin(), series.step(), job_series_columns, series.size(),
                             [&](std::size_t i) { return series.point(i); });
  double cores = static_cast<double>(document["cpu_milli"].int_or(0)) / 1000, mem = 0;
  int cards = 0;
  const auto& state = call->host.state();
  for (const Json& task : document["tasks"].items()) {
    const auto node = state.nodes.find(NodeId(task["node_id"].uint_or(0)));
    if (node == state.nodes.end())
      continue;
    if (cores == 0)
      cores = static_cast<double>(node->second.offer.cpu_milli) / 1000;
    for (const Json& gpu : task["gpus"].items())
      for (const NodeGpu& g : node->second.offer.gpus)
        if (g.index == gpu.int_or(-1)) {
          mem += static_cast<double>(g.mem_mib);
          ++cards;
        }
  }
  Json list = Json::array();
  for (const view::Finding& f : view::findings(series, cores, mem, cards))
    list.push(Json::object({{"kind", f.kind}, {"text", f.text}, {"hint", f.hint}}));
  out.set("cores", cores);
  out.set("findings", std::move(list));
  call->reply(200, out);
}

}  // namespace

void fleet(CallPtr call) {
  answer_series(call, "fleet", fleet_series_columns);
}

void gpu(CallPtr call) {
  if (const Place place = place_asked(call); place.gpu)
    answer_series(call, fmt::format("{}/{}", place.node->offer.name, place.gpu->uuid),
                  gpu_series_columns);
}

// Cold starts are counted per point, and the cost of 1,000 requests follows from both series.
void endpoint(CallPtr call) {
  const auto window = history_window_of(call);
  if (!window)
    return call->fail(window.error());
  const std::string& name = call->parts[0];
  const auto found = call->host.state().endpoints.find(name);
  if (found == call->host.state().endpoints.end() || !may_see(*call, found->second.project))
    return call->fail({Code::not_found, fmt::format("there is no endpoint \"{}\"", name),
                       "see `billow endpoints`"});
  const Status queued = call->host.workers().submit(
      [&history = call->host.history(), key = "endpoint " + name, w = *window] {
        return history.read(key, w.from, w.to, w.points);
      },
      [call](Result<SeriesAnswer> answer) {
        if (!answer)
          return call->fail(answer.error());
        // A point that is known in part stands for that part only.
        double requests = 0, errors = 0, cold_starts = 0, usd = 0;
        const auto add = [](double& sum, double value) {
          sum += std::isnan(value) ? 0 : value;
        };
        for (std::size_t i = 0; i < answer->points.size(); ++i) {
          GpuSampleRow& point = answer->points[i];
          const double seconds = answer->known_s[i];
          point[endpoint_cold_starts] *= seconds / limits::history_step.seconds();
          add(requests, point[endpoint_requests] / 1000 * seconds);
          add(errors, point[endpoint_errors] / 1000 * seconds);
          add(cold_starts, point[endpoint_cold_starts] / 1000);
          add(usd, point[endpoint_spend] / 1000 / 3600 * seconds);
        }
        Json out = series_document(answer->from, answer->step, endpoint_series_columns,
                                   answer->points.size(),
                                   [&](std::size_t i) { return answer->points[i]; });
        out.set("requests", requests);
        out.set("errors", errors);
        out.set("cold_starts", cold_starts);
        out.set("usd_per_1000", requests >= 1 ? Json(usd / requests * 1000) : Json());
        call->reply(200, out);
      });
  if (!queued)
    call->fail(queued.error());
}

void job(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  with_job_document(call, ref->id, [call, id = ref->id](Json document) {
    if (const JobSeries* live = call->host.live_series(id))
      return reply_job(call, document, *live);
    const Status queued = call->host.workers().submit(
        [&history = call->host.history(), id] { return history.job(id); },
        [call, document](Result<std::optional<JobSeries>> series) {
          if (!series)
            return call->fail(series.error());
          reply_job(call, document, *series ? **series : JobSeries(call->host.now()));
        });
    if (!queued)
      call->fail(queued.error());
  });
}

namespace {

struct DrainGpuBody {
  std::string reason;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reason", s.reason);
  }
};

}  // namespace

void drain_gpu(CallPtr call) {
  const Place place = place_asked(call);
  if (!place.gpu)
    return;
  const auto body = read_body<DrainGpuBody>(call);
  if (!body)
    return;
  std::string reason = body->reason;
  if (reason.empty())
    reason = "drained by " + call->principal.name;
  call->execute(DrainGpu{place.node->id, place.gpu->index, reason, {}}, 200,
                [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

void undrain_gpu(CallPtr call) {
  if (const Place place = place_asked(call); place.gpu)
    call->execute(DrainGpu{place.node->id, place.gpu->index, "", {}}, 200,
                  [](const std::vector<Event>&) {
                    return Json::object({{"ok", true}});
                  });
}

}  // namespace billow::api::history
