// An image may name a user for its program. A job's container has one user, the job's own, who is
// root in it. For such an image a second user namespace, made inside the finished container, gives
// that one user the image's numbers instead. The program then runs as the user the image names, has
// no capabilities, and owns the image's files. It gains nothing: outside it is still the job's
// user.
//
// This is billow-supervise itself, which is static and so runs in every image, under another name.
#pragma once

namespace billow::supervise {

inline constexpr const char* as_user_name = "billow-as-user";

// `billow-as-user UID GID COMMAND [ARG…]`: becomes the command. Returns an exit code if it could
// not.
int become_image_user(int argc, char** argv);

inline constexpr char confine_word[] = "confine";
// `billow-as-user confine NUMBER COMMAND [ARG…]`: the same, with the system calls refused that the
// number names (CallRules of process/call_filter_linux.h).
int confine_command(int argc, char** argv);

}  // namespace billow::supervise
