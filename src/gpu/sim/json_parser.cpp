// Boost.JSON compiled into the simulated library: Debian's archive of it is not
// position-independent.
#include <boost/json/src.hpp>
