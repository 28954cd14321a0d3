// What pools can rent for a job: which offers suit it, what they cost it, and which of them the
// provider has refused. Internal to this module.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/control/state.h"

namespace billow::control {

// Something that can be ordered: one offer of a pool, or the one kind of machine that a pool
// without offers has.
struct Source {
  const Pool* pool = nullptr;
  const MachineOffer* offer = nullptr;  // null: the pool has no offers
  std::int32_t gpus() const { return offer ? offer->gpus : pool->gpus; }
  const std::string& gpu_type() const { return offer ? offer->gpu_type : pool->gpu_type; }
  Rate price() const { return offer ? offer->price : pool->price; }
};
// The source of a machine that was ordered.
Source source_of(const Machine& machine, const Pool& pool);
std::vector<Source> sources_of(const Pool& pool);

// Whether one machine of this source could run one task of the job, at a price the job accepts.
// The scheduler is asked whether it would start the job on such a machine.
// Of a group: one of its members.
bool fits(const State& state, const Job& job, const Source& source);
// One member of each role of a group as a job without roles, told apart by `array_index`.
std::vector<Job> members_alone(const Job& job);
// What the last machine of this source turned out to be; null: none has come.
const LearnedShape* learned_of(const Source& source);
// A node as machines of this source will be: as the last one turned out to be, else as the offer
// says. Properties that are unknown before the first machine has joined are assumed to suit the
// job.
sched::NodeShape expected_node(const Source& source, const JobSpec& spec);
// The machine of this kind that came for the job and was not used; null: none.
const UnusedMachine* unused_for(const Source& source, JobId kind);
// The label of a job that says, in seconds since 1970, when it should have ended (--by).
inline constexpr const char* label_by = "by";
// Whether the job must not lose time to a reclaimed machine any more.
bool time_is_short(const Job& job, WallTime now, Duration expected);
// Whether all nodes of a gang may come from these two.
bool same_place(const Source& a, const Source& b);

// The refusal that keeps this offer from being ordered now; null: none does. What a refusal covers
// depends on its kind: "sold out" is about one kind of machine in one zone, a quota about all
// machines with that GPU in the region.
const OfferRefusal* refusal_of(const Pool& pool, const MachineOffer& offer, WallTime now);
Duration pause_after(RefusalKind kind);

// Smaller is better: capacity that is paid for already, then the price of a GPU that works, with an
// allowance for the work that a reclaimed machine loses. `useful_gpus` is how many of the machine's
// GPUs the waiting jobs would use.
std::int64_t price_per_useful_gpu(const Source& source, std::int64_t useful_gpus);

// What the pool would rent for the job if its highest price did not count.
std::optional<Source> cheapest_at_any_price(const State& state, const Job& job, const Pool& pool);

// "p5.48xlarge in us-east-1a (spot, $12.30/h)"
std::string offer_text(const MachineOffer& offer);

// Whether the job may run longer than an allocation of the pool lasts, and saves nothing.
bool outlasts(const JobSpec& spec, const Pool& pool);

// How many more machines the pool may order within this minute.
std::uint32_t orders_left(const Pool& pool, WallTime now);

// Thousandths of GPUs that a job of this kind needs on a machine.
std::int64_t wanted_milli(const Resources& r, std::int32_t machine_gpus);
// What a gang of this kind is ordered on each node.
std::int32_t gpus_on_a_node(const Resources& r, std::int32_t machine_gpus);
// Thousandths of GPUs that machines of this source bring if they are ordered for this job alone.
std::int64_t brought_milli(const Source& source, const JobSpec& spec);

}  // namespace billow::control
