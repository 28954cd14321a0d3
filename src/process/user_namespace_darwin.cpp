#include "process/user_namespace.h"

namespace billow::process {

Result<Fd> make_user_namespace(const OutsideUser&) {
  return fail(Code::unsupported, "this system has no user namespaces");
}
Status enter_user_namespace(int) {
  return fail(Code::unsupported, "this system has no user namespaces");
}
Status become_namespace_root() {
  return fail(Code::unsupported, "this system has no user namespaces");
}

}  // namespace billow::process
