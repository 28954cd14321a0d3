// One endpoint on a stage: the tables it is shown, and what it says. No socket, no clock.
#pragma once

#include <gtest/gtest.h>

#include "gateway/endpoint.h"

namespace billow::gateway {

struct Stage {
  std::vector<FromGateway> said;
  LiveEndpoint endpoint{"app", [this](FromGateway m) { said.push_back(std::move(m)); },
                        [] {
                          return std::uint16_t{20001};
                        }};
  EndpointRow row{.name = "app"};
  SteadyTime now{1'000'000'000'000};

  void show() {
    endpoint.update(row, now);
    endpoint.steer(now);
  }
  void add(std::uint64_t job, std::uint32_t revision, PortHolder holder = PortHolder::task) {
    row.replicas.push_back({.job = job,
                            .revision = revision,
                            .address = "127.0.0.1:9",
                            .job_state = JobState::running,
                            .task_state = TaskState::running,
                            .port_holder = holder});
    show();
  }
  void healthy(std::uint64_t job) {
    endpoint.checked(job, Check::good, now);
    endpoint.steer(now);
  }
  void fails(std::uint64_t job, const std::string& reason) {
    std::erase_if(row.replicas, [&](const ReplicaRow& r) { return r.job == job; });
    row.failed_job = job;
    row.failed_reason = reason;
    show();
  }
  template <class T>
  std::vector<T> all() const {
    std::vector<T> out;
    for (const auto& m : said)
      if (const auto* t = std::get_if<T>(&m))
        out.push_back(*t);
    return out;
  }
};

}  // namespace billow::gateway
