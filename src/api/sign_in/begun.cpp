// Sign-ins that have begun and not ended.
#include <algorithm>

#include "api/sign_in/sign_ins.h"
#include "base/crypto.h"

namespace billow::api {
namespace {

constexpr Duration begun_life = minutes(10);
constexpr std::size_t begun_max = 2000, begun_per_peer_max = 20;

template <class Map>
Status check_count(Map& all, const std::string& peer, SteadyTime now) {
  std::erase_if(all, [&](const auto& each) { return each.second.until < now; });
  const auto of_peer =
      std::ranges::count_if(all, [&](const auto& each) { return each.second.peer == peer; });
  if (static_cast<std::size_t>(of_peer) >= begun_per_peer_max || all.size() >= begun_max)
    return fail(Code::exhausted, "too many sign-ins are in progress", "try again in a few minutes");
  return {};
}

}  // namespace

Result<std::string> SignIns::begin(Begun begun) {
  const SteadyTime now = host_.loop().steady();
  BILLOW_TRY_VOID(check_count(begun_, begun.peer, now));
  begun.until = now + begun_life;
  std::string state = random_token(24);
  begun_[state] = std::move(begun);
  return state;
}

std::optional<SignIns::Begun> SignIns::take(const std::string& state) {
  const auto found = begun_.find(state);
  if (found == begun_.end())
    return std::nullopt;
  Begun out = std::move(found->second);
  begun_.erase(found);
  return out.until >= host_.loop().steady() ? std::optional(std::move(out)) : std::nullopt;
}

Result<std::string> SignIns::begin_device(Device device) {
  BILLOW_TRY_VOID(check_count(devices_, device.peer, host_.loop().steady()));
  std::string handle = random_token(24);
  devices_[handle] = std::move(device);
  return handle;
}

SignIns::Device* SignIns::device(const std::string& handle) {
  const auto found = devices_.find(handle);
  if (found == devices_.end() || found->second.until < host_.loop().steady())
    return nullptr;
  return &found->second;
}

}  // namespace billow::api
