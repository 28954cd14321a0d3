// An image may name a user for its program. A job's room has one user, the job's own, who is root
// in it; for such an image a second user namespace, made inside when the room is ready, gives that
// one user the image's numbers instead. The program then is who the image says, has no capability
// at all, and the files of the image are its own. Nothing is gained: outside it is the job's user
// as before.
//
// It is this program, static and so at home in every image, shown there under another name.
#pragma once

namespace billow::supervise {

inline constexpr const char* as_user_name = "billow-as-user";

// `billow-as-user UID GID COMMAND [ARG…]`: becomes the command. Returns what to exit with where it
// could not.
int become_image_user(int argc, char** argv);

}  // namespace billow::supervise
