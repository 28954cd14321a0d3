#include "pool/kubernetes/pod_state.h"

#include <fmt/format.h>

#include "base/formats/utc.h"
#include "base/limits.h"
#include "base/text.h"
#include "pool/kubernetes/kubeconfig.h"
#include "pool/kubernetes/pod.h"

namespace billow::pool {
namespace {

constexpr std::int64_t deadline_s_max = 100LL * 366 * 86'400;  // more is no deadline

std::string text(const Json& value) {
  return std::string(value.str_or(""));
}

const Json& condition(const Json& pod, std::string_view type) {
  static const Json none;
  for (const Json& one : pod.at("status", "conditions").items())
    if (one["type"].str_or("") == type)
      return one;
  return none;
}

bool is_true(const Json& condition) {
  return condition["status"].str_or("") == "True";
}

std::string with_message(std::string words, const Json& from) {
  const std::string_view message = trim(from["message"].str_or(""));
  return message.empty() ? words : fmt::format("{}: {}", words, message);
}

// Why Kubernetes takes a pod away, by the condition DisruptionTarget. Empty: it does not.
std::string disruption(const Json& pod) {
  const Json& target = condition(pod, "DisruptionTarget");
  if (!is_true(target))
    return {};
  const std::string_view reason = target["reason"].str_or("");
  if (reason == "PreemptionByScheduler")
    return with_message("preempted by a pod of higher priority", target);
  if (reason == "EvictionByEvictionAPI")
    return "evicted, for example because its node is drained";
  if (reason == "DeletionByTaintManager")
    return with_message("its node was tainted or does not answer", target);
  if (reason == "DeletionByPodGC")
    return "its node no longer exists";
  if (reason == "TerminationByKubelet")
    return with_message("ended by its node", target);
  return with_message(text(target["reason"]), target);
}

// How the container ended.
std::string container_end(const Json& pod) {
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const Json& status : pod.at("status", list).items()) {
      const Json& end = status.at("state", "terminated");
      if (!end.is_object() || end["exitCode"].int_or(0) == 0)
        continue;
      const std::string_view reason = end["reason"].str_or("");
      if (reason == "OOMKilled")
        return "the pod used more memory than its limit (OOMKilled)";
      if (reason == "StartError" || reason == "ContainerCannotRun")
        return with_message("its container could not start", end);
      std::string words =
          fmt::format("its agent ended with exit code {}", end["exitCode"].int_or(0));
      // The last line of what the agent said.
      const std::string_view said = trim(end["message"].str_or(""));
      if (!said.empty())
        words += fmt::format(": {}", said.substr(said.rfind('\n') + 1));
      return words;
    }
  return {};
}

// Whether an ended pod was evicted, preempted or deleted, or its node is gone.
bool was_taken(const Json& pod) {
  const std::string_view reason = pod.at("status", "reason").str_or("");
  return reason == "Evicted" || reason == "NodeLost" || !disruption(pod).empty() ||
         !pod.at("metadata", "deletionTimestamp").is_null();
}

std::string end_reason(const Json& pod) {
  const Json& status = pod["status"];
  const std::string_view reason = status["reason"].str_or("");
  if (reason == "Evicted")
    return with_message("evicted by its node", status);
  if (reason == "DeadlineExceeded")
    return "its time limit has passed";
  if (reason == "NodeLost")
    return "its node does not answer";
  if (std::string why = disruption(pod); !why.empty())
    return why;
  if (std::string why = container_end(pod); !why.empty())
    return why;
  if (!reason.empty())
    return with_message(text(status["reason"]), status);
  return "its agent has ended";
}

bool cannot_start(std::string_view reason) {
  for (const char* one :
       {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull",
        "CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
    if (reason == one)
      return true;
  return false;
}

// Before its container runs.
void read_start(const Json& pod, PodSeen& seen) {
  const Json& scheduled = condition(pod, "PodScheduled");
  if (!is_true(scheduled)) {
    seen.stage = PodStage::waiting;
    seen.note = scheduled["reason"].str_or("").empty()
                    ? "waits for a node"
                    : with_message(text(scheduled["reason"]), scheduled);
    return;
  }
  seen.stage = PodStage::starting;
  seen.note = fmt::format("starting on {}", seen.node);
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const Json& status : pod.at("status", list).items()) {
      const Json& waiting = status.at("state", "waiting");
      if (!cannot_start(waiting["reason"].str_or("")))
        continue;
      seen.stage = PodStage::stuck;
      seen.note =
          with_message(fmt::format("{} on {}", text(waiting["reason"]), seen.node), waiting);
      return;
    }
}

void read_stage(const Json& pod, PodSeen& seen) {
  const std::string_view phase = pod.at("status", "phase").str_or("");
  if (phase == "Succeeded" || phase == "Failed") {
    seen.stage = PodStage::ended;
    seen.has_reason = true;
    seen.taken = was_taken(pod);
    seen.note = end_reason(pod);
    return;
  }
  if (!pod.at("metadata", "deletionTimestamp").is_null()) {
    seen.stage = PodStage::leaving;
    seen.taken = true;
    const std::string why = disruption(pod);
    seen.note = why.empty() ? "is being deleted" : why;
    seen.has_reason = !why.empty();
    return;
  }
  if (phase != "Running")
    return read_start(pod, seen);
  seen.stage = PodStage::running;
  seen.note = fmt::format("running on {}", seen.node);
  // The phase stays "Running" when the node falls silent; only this condition changes.
  if (condition(pod, "Ready")["status"].str_or("") == "False")
    seen.note += ", which does not answer";
}

}  // namespace

std::string billow_node_of(const PodSeen& pod) {
  if (pod.nodes <= 1)
    return pod.machine;
  // Its name ends with "-r" and the rank.
  return fmt::format("{}.{}", pod.machine, pod.name.substr(pod.name.rfind("-r") + 2));
}

PodSeen read_pod(const Json& pod) {
  const Json& metadata = pod["metadata"];
  PodSeen seen;
  seen.name = text(metadata["name"]);
  seen.uid = text(metadata["uid"]);
  seen.machine = text(metadata.at("labels", label_machine));
  seen.node = text(pod.at("spec", "nodeName"));
  seen.address = text(pod.at("status", "podIP"));
  seen.nodes = static_cast<std::uint32_t>(
      parse_int(metadata.at("annotations", annotation_nodes).str_or("1"), 1, 1'000'000)
          .value_or(1));
  seen.created_s = utc_or_zero(metadata["creationTimestamp"].str_or("")).ns / 1'000'000'000;
  const std::int64_t started_s =
      utc_or_zero(pod.at("status", "startTime").str_or("")).ns / 1'000'000'000;
  const std::int64_t time_s = pod.at("spec", "activeDeadlineSeconds").int_or(0);
  if (started_s > 0 && time_s > 0)
    seen.ends_at_s = started_s + std::min(time_s, deadline_s_max);
  for (const Json& volume : pod.at("spec", "volumes").items())
    if (volume["name"].str_or("") == token_volume)
      seen.secret = text(volume.at("secret", "secretName"));
  read_stage(pod, seen);
  seen.note = utf8_prefix(seen.note, limits::words_bytes_max);
  return seen;
}

}  // namespace billow::pool
