// Groups: jobs with several roles. A group is a gang whose members differ (docs/adr/0021): the
// scheduler places all of them or none, and a member can be replaced alone, as in elastic gangs.
// Internal to this module.
#pragma once

#include "core/control/state.h"
#include "core/wire/agent_v1.h"

namespace billow::control {

// Fills the members of a submitted group's description that follow from its roles.
void complete_roles(JobSpec& spec);
Status validate_roles(const JobSpec& spec);

// Whether only services are left to stop: every member of the other roles has ended successfully.
bool only_services_left(const State& state, const Job& job);

// Where a member of a gang or group runs. The node of a member that has ended may have been removed
// since: its name then resolves to nothing (RFC 2606), and the places of the others stay.
struct MemberHost {
  std::string name, address;
};
MemberHost host_of(const State& state, const Job& job, std::uint32_t rank);

// What one member runs, and the variables by which it finds the others.
void set_role(const State& state, const Job& job, const Task& task, wire::agent_v1::Start& start);

}  // namespace billow::control
