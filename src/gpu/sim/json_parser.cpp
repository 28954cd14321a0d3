// The parts of Boost.JSON that its parser needs, compiled into the simulated library: Debian's
// archive of it is not position-independent, and compiling all of it takes ten seconds.
#define BOOST_JSON_SOURCE
#include <boost/json/basic_parser.hpp>
#include <boost/json/error.hpp>
#include <boost/json/memory_resource.hpp>
#include <boost/json/storage_ptr.hpp>

#include <boost/json/detail/impl/default_resource.ipp>
#include <boost/json/detail/impl/except.ipp>
#include <boost/json/detail/impl/stack.ipp>
#include <boost/json/impl/error.ipp>
