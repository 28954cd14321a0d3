// Variables of the job that must never be in a file: they come in memory through a descriptor, go
// to the job, and are wiped here.
#pragma once

#include "supervise/spec.h"

namespace billow::supervise {

// Beside the descriptors of protocol.h: sealed memory with "NAME=value\0" of each; may be absent.
inline constexpr int fd_secrets = 5;
inline constexpr std::size_t secret_bytes_max = 8u << 20;
// Sealed memory with the values that the log must not show (redactor.h); may be absent.
inline constexpr int fd_redacted = 6;

// Null if they are in spec->env, before the variables of the spec, or if there are none; otherwise
// what is wrong.
const char* take_secrets(Spec* spec);
// Called when the job has them.
void forget_secrets();

}  // namespace billow::supervise
