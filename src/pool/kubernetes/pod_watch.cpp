#include "pool/kubernetes/pod_watch.h"

#include <fmt/format.h>

#include <chrono>

#include "base/log.h"

namespace billow::pool {
namespace {

constexpr int items_of_a_page = 500;
constexpr int list_restarts_max = 3;
// The server ends a watch after this time. A peer that died silently is noticed a little later.
constexpr Duration watch_time = seconds(120);
constexpr Duration watch_margin = seconds(20);
constexpr Duration first_pause = milliseconds(250);
constexpr Duration longest_pause = seconds(5);
constexpr Duration healthy_after = seconds(30);  // a watch that lasted this long
constexpr Duration list_instead_every = seconds(2);
constexpr Duration first_list_max = seconds(10);
constexpr std::size_t gone_max = 4096;

}  // namespace

PodWatch::PodWatch(KubeClient& client, StopSignal& stop, Options options)
    : client_(client), options_(std::move(options)), stop_(stop), thread_([this] { run(); }) {}

PodWatch::~PodWatch() {
  stop_.raise();
  thread_.join();
}

void PodWatch::expect(const std::string& uid) {
  auto seen = seen_.lock();
  if (!seen->pods.contains(uid) && !seen->gone.contains(uid))
    seen->awaited.insert(uid);
}

Result<std::vector<PodSeen>> PodWatch::pods() {
  auto seen = seen_.lock();
  const auto current = [&] {
    return seen->listed && seen->awaited.empty();
  };
  changed_.wait_for(seen.mutex_lock(), std::chrono::nanoseconds(first_list_max.ns),
                    [&] { return current() || (!seen->listed && seen->tried); });
  if (!seen->listed)
    return pass(seen->error);
  if (!seen->awaited.empty())
    return fail(Code::unavailable, "the API server has not reported a pod that was just created");
  std::vector<PodSeen> out;
  out.reserve(seen->pods.size());
  for (const auto& [uid, pod] : seen->pods)
    out.push_back(pod);
  return out;
}

std::string PodWatch::last_words(const std::string& machine) {
  auto seen = seen_.lock();
  const auto found = seen->words.find(machine);
  if (found == seen->words.end())
    return {};
  std::string out = std::move(found->second);
  seen->words.erase(found);
  return out;
}

// ---- the thread

void PodWatch::run() {
  std::string version;  // empty: list first
  Duration wait = first_pause;
  bool resumed = false;  // the last watch broke, and was begun again at the same place
  while (!stop_.raised()) {
    if (version.empty()) {
      auto listed = list();
      if (!listed) {
        failed(listed.error());
        (void)stop_.pause(wait);
        wait = std::min(wait * 2, longest_pause);
        continue;
      }
      version = std::move(*listed);
      resumed = false;
    }
    const SteadyTime began = system_clock().steady();
    const Ended ended = watch(version);
    const Duration lasted = system_clock().steady() - began;
    const bool short_lived = lasted < seconds(1);
    switch (ended) {
      case Ended::in_order:
        resumed = false;
        break;
      case Ended::broken:
        if (resumed && lasted < healthy_after)
          version.clear();
        resumed = true;
        break;
      case Ended::too_old:
        version.clear();
        break;
      case Ended::refused:
        version.clear();
        (void)stop_.pause(list_instead_every);
        continue;
    }
    if (!short_lived)
      wait = first_pause;
    else if (!stop_.pause(wait))
      return;
    else
      wait = std::min(wait * 2, longest_pause);
  }
}

void PodWatch::failed(const Error& error) {
  auto seen = seen_.lock();
  seen->listed = false;
  seen->tried = true;
  seen->error = error;
  changed_.notify_all();
}

Result<std::string> PodWatch::list() {
  const std::set<std::string> awaited = seen_.lock()->awaited;
  std::vector<PodSeen> found;
  std::string version = BILLOW_TRY(list_once(found));
  const std::vector<PodSeen> changed = found;
  {
    auto seen = seen_.lock();
    std::map<std::string, PodSeen> pods;
    for (PodSeen& pod : found) {
      seen->awaited.erase(pod.uid);
      pods[pod.uid] = std::move(pod);
    }
    // Those that were created before and are not listed have been deleted since.
    for (const std::string& uid : awaited)
      seen->awaited.erase(uid);
    seen->pods = std::move(pods);
    seen->listed = true;
  }
  changed_.notify_all();
  for (const PodSeen& pod : changed)
    options_.on_change(pod);
  return version;
}

Result<std::string> PodWatch::list_once(std::vector<PodSeen>& found) {
  const std::string first = fmt::format("{}?labelSelector={}&limit={}", options_.pods,
                                        net::percent_encode(options_.selector), items_of_a_page);
  std::string more;
  for (int restarts = 0;;) {
    const std::string page =
        more.empty() ? first : first + "&continue=" + net::percent_encode(more);
    const auto answer = BILLOW_TRY(client_.ask({.target = page}));
    if (answer.status == 410 && ++restarts <= list_restarts_max) {  // the rest is too old
      found.clear();
      more.clear();
      continue;
    }
    if (!answer.ok())
      return pass(answer.error("listing the pods"));
    if (!answer.body["items"].is_array() && !answer.body["items"].is_null())
      return fail(Code::unavailable, "the API server's list of pods has no items");
    for (const Json& pod : answer.body["items"].items())
      if (PodSeen seen = read_pod(pod); options_.wanted(seen))
        found.push_back(std::move(seen));
    more = answer.body.at("metadata", "continue").str_or("");
    if (more.empty())
      return std::string(answer.body.at("metadata", "resourceVersion").str_or(""));
  }
}

PodWatch::Ended PodWatch::watch(std::string& version) {
  const std::string target = fmt::format(
      "{}?labelSelector={}&watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
      options_.pods, net::percent_encode(options_.selector), watch_time.ns / seconds(1).ns,
      net::percent_encode(version));
  Ended ended = Ended::in_order;
  const auto answer = client_.follow(target, watch_time + watch_margin, [&](std::string_view line) {
    return take(line, version, ended);
  });
  if (!answer)
    return Ended::broken;
  if (answer->status == 410)
    return Ended::too_old;
  if (answer->status == 403) {
    log_warn("{}; the pods are listed every {} s instead",
             answer->error("watching the pods").message, list_instead_every.ns / seconds(1).ns);
    return Ended::refused;
  }
  return answer->ok() ? ended : Ended::broken;
}

// One event. False: the watch is of no more use.
bool PodWatch::take(std::string_view line, std::string& version, Ended& ended) {
  const auto event = parse_json(line);
  if (!event) {
    ended = Ended::too_old;
    return false;
  }
  const std::string_view type = (*event)["type"].str_or("");
  const Json& object = (*event)["object"];
  if (type == "ERROR") {
    ended = object["code"].int_or(0) == 410 ? Ended::too_old : Ended::broken;
    return false;
  }
  if (type == "ADDED" || type == "MODIFIED")
    put(object);
  else if (type == "DELETED")
    remove(object);
  if (const auto at = object.at("metadata", "resourceVersion").str_or(""); !at.empty())
    version = at;
  return true;
}

void PodWatch::put(const Json& document) {
  PodSeen pod = read_pod(document);
  if (!options_.wanted(pod))
    return;
  {
    auto seen = seen_.lock();
    seen->awaited.erase(pod.uid);
    seen->pods[pod.uid] = pod;
  }
  changed_.notify_all();
  options_.on_change(pod);
}

void PodWatch::remove(const Json& document) {
  const PodSeen pod = read_pod(document);
  {
    auto seen = seen_.lock();
    seen->pods.erase(pod.uid);
    seen->awaited.erase(pod.uid);
    if (seen->words.size() >= gone_max)
      seen->words.clear();
    if (options_.wanted(pod) && pod.has_reason)
      seen->words[pod.machine] = pod.note;
    if (seen->gone.insert(pod.uid).second)
      seen->gone_in_order.push_back(pod.uid);
    if (seen->gone_in_order.size() > gone_max) {
      seen->gone.erase(seen->gone_in_order.front());
      seen->gone_in_order.pop_front();
    }
  }
  changed_.notify_all();
}

}  // namespace billow::pool
