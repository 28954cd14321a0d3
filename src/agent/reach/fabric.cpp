#include "agent/reach/fabric.h"

#include <fmt/format.h>
#include <limits.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "gpu/link_facts.h"
#include "gpu/peer_copy.h"
#include "process/command.h"

namespace billow::agent {

using namespace wire::fabric_v1;

namespace {

constexpr Duration gpus_patience = seconds(60);
constexpr Duration listener_life = seconds(25);

std::string own_path() {
  char path[PATH_MAX] = "";
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof path - 1);
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : std::string("billow");
}

}  // namespace

struct Fabric::Kept {
  std::string cards;
  std::map<std::string, std::string> labels;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("cards", s.cards);
    v("labels", s.labels);
  }
};

std::map<std::string, std::string> link_labels(const std::vector<GpuInfo>& gpus) {
  std::map<std::string, std::string> out;
  if (gpus.empty())
    return out;
  out["gpu-link"] = link_name(gpus.front());
  std::size_t joined = 0;  // the largest group of cards that reach each other by NVLink
  for (const GpuInfo& gpu : gpus) {
    std::size_t near = 0;
    for (const GpuPeer& peer : gpu.peers) {
      const bool offered = std::any_of(gpus.begin(), gpus.end(), [&](const GpuInfo& other) {
        return other.index == peer.index;
      });
      near += offered && peer.level == LinkLevel::fabric;
    }
    joined = std::max(joined, near + 1);
  }
  if (gpus.front().fabric_links > 0)
    out["nvlink-gpus"] = std::to_string(joined > 1 ? joined : 0);
  return out;
}

Fabric::Fabric(net::Loop& loop, Options options)
    : loop_(loop), options_(std::move(options)), workers_(loop, {.threads = 1, .queue_max = 4}) {
  const auto text = read_file(path(), 1 << 20);
  if (!text)
    return;
  // The figures are invalid if the cards have changed since.
  if (auto kept = wire::from_json_text<Kept>(*text); kept && kept->cards == cards())
    labels_ = std::move(kept->labels);
}
Fabric::~Fabric() = default;

std::string Fabric::cards() const {
  std::string all;
  for (const GpuInfo& gpu : options_.gpus)
    all += gpu.uuid + "\n";
  return sha256_hex(all);
}

void Fabric::ask(const Ask& ask) {
  switch (ask.step) {
    case Step::gpus:
      return measure_gpus(ask);
    case Step::listen:
      return listen(ask);
    case Step::dial:
      return dial(ask);
    case Step::keep:
      return keep(ask);
  }
}

// Runs in a separate process: contexts hold memory on every card until the process ends.
void Fabric::measure_gpus(const Ask& ask) {
  std::string visible;
  for (const GpuInfo& gpu : options_.gpus)
    visible += (visible.empty() ? "" : ",") + gpu.uuid;
  const bool simulated = !options_.gpus.empty() && options_.gpus.front().simulated;
  process::CommandSpec spec{.argv = {own_path(), "check", "gpus", "--json"},
                            .env = {{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}},
                            .input = {},
                            .timeout = gpus_patience};
  if (!simulated)
    spec.env["CUDA_VISIBLE_DEVICES"] = visible;
  const Status queued = workers_.submit(
      [spec] { return process::run_command(spec); },
      [this, id = ask.id](Result<process::CommandResult> done) {
        Answer answer;
        answer.id = id;
        const auto finish = [&](std::string error) {
          answer.error = std::move(error);
          options_.answer(std::move(answer));
        };
        if (!done)
          return finish(done.error().message);
        if (done->code != 0)
          return finish(done->complaint());
        const auto json = parse_json(done->out);
        const auto figures = json ? copies_from_json(*json)
                                  : Result<CopyFigures>(fail(Code::invalid, "unreadable figures"));
        if (!figures)
          return finish(figures.error().message);
        for (const PeerCopy& copy : figures->peers) {
          if (copy.from >= options_.gpus.size() || copy.to >= options_.gpus.size())
            continue;
          answer.pairs.push_back({static_cast<std::int32_t>(copy.from),
                                  static_cast<std::int32_t>(copy.to), copy.mb_s,
                                  expected_mb_s(options_.gpus[copy.from], options_.gpus[copy.to])});
        }
        for (const HostCopy& copy : figures->host) {
          if (copy.gpu >= options_.gpus.size())
            continue;
          const GpuInfo& gpu = options_.gpus[copy.gpu];
          answer.pairs.push_back({-1, static_cast<std::int32_t>(copy.gpu),
                                  std::min(copy.to_gpu_mb_s, copy.from_gpu_mb_s),
                                  expected_host_mb_s(gpu)});
        }
        finish("");
      });
  if (!queued)
    options_.answer(Answer{.id = ask.id, .error = queued.error().message});
}

void Fabric::listen(const Ask& ask) {
  Answer answer{.id = ask.id};
  listener_.reset();
  auto opened =
      ask.secret.size() < 32
          ? Result<std::unique_ptr<StreamListener>>(fail(Code::invalid, "no secret was given"))
          : StreamListener::open(ask.address, ask.secret);
  if (!opened) {
    answer.error = opened.error().message;
  } else {
    listener_ = std::move(*opened);
    answer.port = listener_->port();
    listener_end_ = loop_.after(listener_life, [this] { listener_.reset(); });
  }
  options_.answer(std::move(answer));
}

void Fabric::dial(const Ask& ask) {
  const StreamTarget target{ask.address, ask.port, ask.secret,
                            std::clamp(ask.lasts, milliseconds(100), seconds(10))};
  const Status queued = workers_.submit([target] { return run_stream_test(target); },
                                        [this, id = ask.id](Result<StreamFigures> figures) {
                                          Answer answer{.id = id};
                                          if (!figures) {
                                            answer.error = figures.error().message;
                                          } else {
                                            answer.mbit_s = figures->mbit_s;
                                            answer.latency_us = figures->latency_us;
                                            answer.interface = figures->interface;
                                            answer.interface_mbit_s = figures->interface_mbit_s;
                                            answer.infiniband_mbit_s = infiniband_mbit_s();
                                          }
                                          options_.answer(std::move(answer));
                                        });
  if (!queued)
    options_.answer(Answer{.id = ask.id, .error = queued.error().message});
}

void Fabric::keep(const Ask& ask) {
  listener_.reset();
  std::map<std::string, std::string> next = labels_;
  for (const auto& [key, value] : ask.labels) {
    if (value.empty())
      next.erase(key);
    else if (key.size() <= 64 && value.size() <= 256)
      next[key] = value;
  }
  Answer answer{.id = ask.id};
  if (const Status written =
          write_file_atomic(path(), wire::to_json_text(Kept{cards(), next}), 0600);
      !written)
    answer.error = written.error().message;
  options_.answer(std::move(answer));
  if (next == labels_)
    return;
  labels_ = std::move(next);
  options_.on_labels();
}

}  // namespace billow::agent
