// Memory that the processes of a job share: one process fetches another's descriptors, and a
// suspend undoes the mappings on all sides before the memory leaves and makes them again when it is
// back.
#include <algorithm>
#include <cerrno>

#include "gpumem/service.h"

namespace billow::gpumem {

std::shared_ptr<Job> Service::find_by_token(const char* token) {
  const std::lock_guard guard(lock_);
  for (const auto& entry : jobs_)
    if (entry.second->spec.token == token)
      return entry.second;
  return nullptr;
}

namespace {
std::shared_ptr<ShimLink> owner_of(Job& job, std::uint32_t slot, std::uint32_t generation) {
  const std::lock_guard guard(job.lock);
  if (slot >= BILLOW_PROCESSES_MAX || job.usage->slots[slot].generation != generation)
    return nullptr;
  for (const auto& link : job.links)
    if (link->slot == slot && !link->closed())
      return link;
  return nullptr;
}

Result<Answer> shared_by(ShimLink& owner,
                         std::uint64_t kind,
                         std::uint64_t key,
                         std::uint64_t first) {
  const std::uint64_t asked[] = {kind, key, first};
  return owner.ask(BILLOW_SHARE, 0, asked, 10000);
}
}  // namespace

// Answers one FETCH of a process; the caller reads further ones from the same connection.
Status Service::fetch(int socket, const Answer& request) {
  billow_fetch wanted{};
  if (request.head.version != BILLOW_ABI_VERSION || request.items.size() < sizeof wanted)
    return fail(Code::invalid, "a process sent a request of another version");
  std::memcpy(&wanted, request.items.data(), sizeof wanted);
  wanted.token[sizeof wanted.token - 1] = 0;
  billow_message head = request.head;
  head.count = 0;
  head.status = ENOENT;
  Answer answer;
  // A process of no job could ask again and again, and so keep a connection and its thread.
  const auto job = find_by_token(wanted.token);
  if (!job)
    return fail(Code::unauthorized, "a process sent a token that no job has");
  if (const auto owner = owner_of(*job, wanted.slot, wanted.generation))
    if (auto shared = shared_by(*owner, wanted.kind, wanted.key, wanted.first)) {
      answer = std::move(*shared);
      head.status = answer.head.status;
      head.count = answer.head.count;
      head.arg0 = answer.head.arg0;
      head.arg1 = answer.head.arg1;
    }
  std::vector<int> descriptors;
  for (const Fd& fd : answer.descriptors)
    descriptors.push_back(fd.get());
  return send_packet(socket, head, answer.items, descriptors);
}

Status Service::detach(Job& job, const std::vector<std::shared_ptr<ShimLink>>& links) {
  job.foreign.clear();
  std::uint64_t features = 0;
  for (const auto& slot : job.usage->slots)
    features |= slot.features;
  if (!(features & BILLOW_USES_SHARED))
    return {};
  for (const auto& link : links) {
    auto shared = link->list<billow_foreign>(BILLOW_FOREIGN);
    if (!shared && !link->closed())
      return pass(shared.error());
    if (shared && !shared->empty())
      job.foreign[link] = std::move(*shared);
  }
  // Before anything is undone: the owner must still have it, or it could not be mapped again.
  for (const auto& [link, all] : job.foreign)
    for (const billow_foreign& f : all) {
      const auto owner = owner_of(job, f.slot, f.generation);
      const auto shared = owner ? shared_by(*owner, BILLOW_SHARE_CHUNK, f.serial, 0)
                                : Result<Answer>(fail(Code::not_found, "its owner has ended"));
      if (!shared || shared->head.status)
        return fail(Code::unsupported,
                    "process " + std::to_string(link->pid()) +
                        " maps GPU memory of a process that has ended or freed it, which cannot be "
                        "suspended",
                    "close the handle (cudaIpcCloseMemHandle) before its owner frees the memory");
    }
  for (const auto& entry : job.foreign) {
    const auto answer = entry.first->ask(BILLOW_DETACH, 0, {}, 30000);
    if (!answer && !entry.first->closed())
      return pass(answer.error());
    if (answer && answer->head.status)
      return fail_errno("a process could not unmap the memory it shares", answer->head.status);
  }
  return {};
}

void Service::attach(Job& job) {
  for (const auto& [link, all] : job.foreign) {
    for (std::size_t at = 0; at < all.size() && !link->closed(); at += BILLOW_BATCH_MAX) {
      std::vector<std::uint64_t> ids;
      std::vector<Fd> descriptors;
      for (std::size_t i = at; i < std::min<std::size_t>(all.size(), at + BILLOW_BATCH_MAX); i++) {
        const auto owner = owner_of(job, all[i].slot, all[i].generation);
        auto shared = owner ? shared_by(*owner, BILLOW_SHARE_CHUNK, all[i].serial, 0)
                            : Result<Answer>(fail(Code::not_found, "its owner has ended"));
        if (!shared || shared->head.status || shared->descriptors.size() != 1) {
          link->broken = ENOENT;  // its owner ended meanwhile: it cannot have the memory again
          continue;
        }
        ids.push_back(all[i].id);
        descriptors.push_back(std::move(shared->descriptors[0]));
      }
      const auto sent = link->send(BILLOW_ATTACH, 0, ids, descriptors);
      const auto answer = sent ? link->wait(*sent, 30000) : Result<Answer>(pass(sent.error()));
      if (!answer || answer->head.status)
        link->broken = EIO;
    }
  }
  job.foreign.clear();
}

}  // namespace billow::gpumem
