#include "gpu/peer_copy.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace billow {
namespace {

using Context = void*;
using Stream = void*;
using Pointer = std::uint64_t;

constexpr int peer_access_already_enabled = 704;
constexpr unsigned stream_non_blocking = 1;

struct Driver {
  int (*init)(unsigned);
  int (*count)(int*);
  int (*retain)(Context*, int);
  int (*set_current)(Context);
  int (*can_access)(int*, int, int);
  int (*enable_peer)(Context, unsigned);
  int (*alloc)(Pointer*, std::size_t);
  int (*free_device)(Pointer);
  int (*host_alloc)(void**, std::size_t, unsigned);
  int (*stream_create)(Stream*, unsigned);
  int (*synchronize)(Stream);
  int (*copy_peer)(Pointer, Context, Pointer, Context, std::size_t, Stream);
  int (*copy_in)(Pointer, const void*, std::size_t, Stream);
  int (*copy_out)(void*, Pointer, std::size_t, Stream);
};

Result<Driver> load() {
  const char* named = std::getenv("BILLOW_CUDA");
  const std::string path = named && *named ? named : "libcuda.so.1";
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return fail(Code::unsupported, fmt::format("no CUDA driver: {} cannot be loaded", path),
                "install the NVIDIA driver on this machine");
  Driver d{};
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (!function && missing.empty())
      missing = name;
  };
  find(d.init, "cuInit");
  find(d.count, "cuDeviceGetCount");
  find(d.retain, "cuDevicePrimaryCtxRetain");
  find(d.set_current, "cuCtxSetCurrent");
  find(d.can_access, "cuDeviceCanAccessPeer");
  find(d.enable_peer, "cuCtxEnablePeerAccess");
  find(d.alloc, "cuMemAlloc_v2");
  find(d.free_device, "cuMemFree_v2");
  find(d.host_alloc, "cuMemHostAlloc");
  find(d.stream_create, "cuStreamCreate");
  find(d.synchronize, "cuStreamSynchronize");
  find(d.copy_peer, "cuMemcpyPeerAsync");
  find(d.copy_in, "cuMemcpyHtoDAsync_v2");
  find(d.copy_out, "cuMemcpyDtoHAsync_v2");
  if (!missing.empty())
    return fail(Code::unsupported, fmt::format("{} has no {}", path, missing),
                "install a driver of CUDA 4 or newer");
  return d;
}

Status check(const char* what, int cuda_result) {
  if (cuda_result == 0)
    return {};
  return fail(Code::unavailable, fmt::format("{}: CUDA error {}", what, cuda_result),
              "check whether another job uses the GPUs");
}

class Copies {
 public:
  Copies(Driver driver, const CopyOptions& options) : driver_(driver), options_(options) {}

  Result<CopyFigures> measure() {
    BILLOW_TRY_VOID(check("cuInit", driver_.init(0)));
    int count = 0;
    BILLOW_TRY_VOID(check("cuDeviceGetCount", driver_.count(&count)));
    CopyFigures figures;
    figures.gpus = static_cast<std::uint32_t>(count);
    for (int i = 0; i < count; ++i) {
      Card card;
      BILLOW_TRY_VOID(check("cuDevicePrimaryCtxRetain", driver_.retain(&card.context, i)));
      BILLOW_TRY_VOID(check("cuCtxSetCurrent", driver_.set_current(card.context)));
      BILLOW_TRY_VOID(check("cuMemAlloc", driver_.alloc(&card.memory, options_.bytes)));
      BILLOW_TRY_VOID(
          check("cuStreamCreate", driver_.stream_create(&card.stream, stream_non_blocking)));
      cards_.push_back(card);
    }
    if (count > 0)
      BILLOW_TRY_VOID(check("cuMemHostAlloc", driver_.host_alloc(&host_, options_.bytes, 0)));
    for (int i = 0; i < count; ++i) {
      HostCopy host{.gpu = static_cast<std::uint32_t>(i)};
      const Card& card = cards_[static_cast<std::size_t>(i)];
      BILLOW_TRY_VOID(check("cuCtxSetCurrent", driver_.set_current(card.context)));
      host.to_gpu_mb_s = BILLOW_TRY(rate(card.stream, [&] {
        return driver_.copy_in(card.memory, host_, options_.bytes, card.stream);
      }));
      host.from_gpu_mb_s = BILLOW_TRY(rate(card.stream, [&] {
        return driver_.copy_out(host_, card.memory, options_.bytes, card.stream);
      }));
      figures.host.push_back(host);
    }
    for (int from = 0; from < count; ++from)
      for (int to = 0; to < count; ++to)
        if (from != to)
          figures.peers.push_back(BILLOW_TRY(pair(from, to)));
    return figures;
  }

 private:
  struct Card {
    Context context = nullptr;
    Pointer memory = 0;
    Stream stream = nullptr;
  };

  Result<PeerCopy> pair(int from, int to) {
    const Card &a = cards_[static_cast<std::size_t>(from)],
               &b = cards_[static_cast<std::size_t>(to)];
    PeerCopy copy{.from = static_cast<std::uint32_t>(from), .to = static_cast<std::uint32_t>(to)};
    BILLOW_TRY_VOID(check("cuCtxSetCurrent", driver_.set_current(a.context)));
    int can = 0;
    BILLOW_TRY_VOID(check("cuDeviceCanAccessPeer", driver_.can_access(&can, from, to)));
    if (can) {
      const int enabled = driver_.enable_peer(b.context, 0);
      copy.direct = enabled == 0 || enabled == peer_access_already_enabled;
    }
    copy.mb_s = BILLOW_TRY(rate(a.stream, [&] {
      return driver_.copy_peer(b.memory, b.context, a.memory, a.context, options_.bytes, a.stream);
    }));
    return copy;
  }

  // One copy to warm up, then groups until the time is over. The fastest group counts, because
  // other traffic may slow down the rest.
  template <class Copy>
  Result<std::int64_t> rate(Stream stream, Copy copy) {
    constexpr int group = 4;
    BILLOW_TRY_VOID(check("copy", copy()));
    BILLOW_TRY_VOID(check("cuStreamSynchronize", driver_.synchronize(stream)));
    double best = 0;
    const SteadyTime end = system_clock().steady() + options_.each;
    do {
      const SteadyTime began = system_clock().steady();
      for (int i = 0; i < group; ++i)
        BILLOW_TRY_VOID(check("copy", copy()));
      BILLOW_TRY_VOID(check("cuStreamSynchronize", driver_.synchronize(stream)));
      const Duration took = system_clock().steady() - began;
      best = std::max(
          best, static_cast<double>(options_.bytes) * group / 1e6 / std::max(took.seconds(), 1e-9));
    } while (system_clock().steady() < end);
    return static_cast<std::int64_t>(best);
  }

  Driver driver_;
  CopyOptions options_;
  std::vector<Card> cards_;
  void* host_ = nullptr;
};

}  // namespace

Result<CopyFigures> measure_copies(const CopyOptions& options) {
  return Copies(BILLOW_TRY(load()), options).measure();
}

Json copies_json(const CopyFigures& figures) {
  Json peers = Json::array(), host = Json::array();
  for (const PeerCopy& p : figures.peers)
    peers.push(
        Json::object({{"from", p.from}, {"to", p.to}, {"direct", p.direct}, {"mb_s", p.mb_s}}));
  for (const HostCopy& h : figures.host)
    host.push(Json::object(
        {{"gpu", h.gpu}, {"to_gpu_mb_s", h.to_gpu_mb_s}, {"from_gpu_mb_s", h.from_gpu_mb_s}}));
  return Json::object(
      {{"gpus", figures.gpus}, {"peers", std::move(peers)}, {"host", std::move(host)}});
}

Result<CopyFigures> copies_from_json(const Json& json) {
  if (!json["peers"].is_array() || !json["host"].is_array())
    return fail(Code::invalid, "these are not the figures of a copy test");
  const auto number = [](const Json& j) {
    return static_cast<std::uint32_t>(j.uint_or(0));
  };
  CopyFigures figures;
  figures.gpus = number(json["gpus"]);
  for (const Json& p : json["peers"].items())
    figures.peers.push_back(
        {number(p["from"]), number(p["to"]), p["direct"].bool_or(false), p["mb_s"].int_or(0)});
  for (const Json& h : json["host"].items())
    figures.host.push_back(
        {number(h["gpu"]), h["to_gpu_mb_s"].int_or(0), h["from_gpu_mb_s"].int_or(0)});
  return figures;
}

}  // namespace billow
