# How every part of Billow is compiled and linked.
include(${CMAKE_CURRENT_LIST_DIR}/batches.cmake)
find_program(CCACHE ccache)
if(CCACHE)
  # ccache compares the files themselves (depend mode), not what the preprocessor leaves of them: a
  # precompiled header whose source differs in a comment is another one to the compiler, which then
  # reads that header twice. So objects are shared by builds in the same folder only.
  set(launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${CCACHE})
  set(CMAKE_C_COMPILER_LAUNCHER ${launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()
find_program(MOLD mold)
if(MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CROSSCOMPILING)
  add_link_options(-fuse-ld=mold)
endif()

# Thin archives: the linker reads the objects where they are, and nothing is copied.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  foreach(language C CXX)
    set(CMAKE_${language}_ARCHIVE_CREATE "<CMAKE_AR> qcT <TARGET> <LINK_FLAGS> <OBJECTS>")
    set(CMAKE_${language}_ARCHIVE_APPEND "<CMAKE_AR> qT <TARGET> <LINK_FLAGS> <OBJECTS>")
  endforeach()
endif()

# Releases have the same bytes wherever they are built: the names of this machine's folders are left out. Not in other
# builds, where the compiler's messages should name the files as the debugger finds them.
option(BILLOW_REPRODUCIBLE "leave the names of this machine's folders out of the programs" OFF)
if(BILLOW_REPRODUCIBLE)
  add_compile_options(-ffile-prefix-map=${CMAKE_BINARY_DIR}=build -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.)
endif()

find_package(Threads REQUIRED)
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL REQUIRED)
# A cross build names the folder with the static libraries of the other architecture; those of this
# machine do not fit.
if(BILLOW_SYSROOT_LIBS)
  set(only_there PATHS ${BILLOW_SYSROOT_LIBS} NO_DEFAULT_PATH)
endif()
find_library(BILLOW_BOOST_JSON NAMES libboost_json.a boost_json ${only_there} REQUIRED)
if(NOT BILLOW_CLIENT_ONLY)
  find_library(BILLOW_SQLITE NAMES libsqlite3.a ${only_there} REQUIRED)
  find_library(BILLOW_YAML NAMES libyaml.a yaml ${only_there} REQUIRED)
  find_library(BILLOW_NGHTTP2 NAMES libnghttp2.a ${only_there} REQUIRED)
endif()
find_library(BILLOW_ZSTD NAMES libzstd.a zstd ${only_there} REQUIRED)
find_library(BILLOW_PUGIXML NAMES libpugixml.a pugixml ${only_there} REQUIRED)

add_library(billow_flags INTERFACE)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The five warnings switched off give false alarms in the standard library of g++ 12 at -O2.
  set(cxx_warnings -Wnon-virtual-dtor -Wno-psabi
    -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread -Wno-maybe-uninitialized)
  target_compile_options(billow_flags INTERFACE
    -Wall -Wextra -Wswitch-enum -Wno-missing-field-initializers -Werror -fPIC -fno-plt
    "$<$<COMPILE_LANGUAGE:CXX>:${cxx_warnings}>")
  # The compiler collects its garbage from 128 MB on by default; from 500 MB on saves 5 to 10 % of
  # its time.
  target_compile_options(billow_flags INTERFACE --param=ggc-min-heapsize=500000)
else()
  # The warnings of other compilers are not known beforehand: they are shown, but are no errors.
  target_compile_options(billow_flags INTERFACE -Wall -Wextra -Wswitch-enum -Wno-missing-field-initializers -fPIC)
endif()
if(APPLE)
  # The compiler does not search Homebrew's headers by itself.
  find_path(BILLOW_HEADERS fmt/format.h REQUIRED)
  target_include_directories(billow_flags SYSTEM INTERFACE ${BILLOW_HEADERS})
endif()
target_include_directories(billow_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
# With a sanitizer g++ 12 warns of things that are not there, so warnings do not stop the build
# then.
if(BILLOW_SANITIZE STREQUAL "address")
  target_compile_options(billow_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer -Wno-error)
  target_link_options(billow_flags INTERFACE -fsanitize=address,undefined)
elseif(BILLOW_SANITIZE STREQUAL "thread")
  target_compile_options(billow_flags INTERFACE -fsanitize=thread -Wno-error -Wno-tsan)
  target_link_options(billow_flags INTERFACE -fsanitize=thread)
elseif(BILLOW_SANITIZE)
  message(FATAL_ERROR "BILLOW_SANITIZE is \"${BILLOW_SANITIZE}\"; use address or thread")
endif()
if(BILLOW_COVERAGE)
  target_compile_options(billow_flags INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(billow_flags INTERFACE --coverage)
endif()

# The rooms through which every request, decision and transferred byte passes are compiled at -O2.
# The others wait for processes, networks and people; they are compiled at -O1, which takes two
# thirds of the time.
set(fast_rooms base files model wire net sched control store gateway)
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT BILLOW_SANITIZE AND NOT BILLOW_COVERAGE)
  set(other_rooms_options -O1)
endif()

# One precompiled header of standard types for each of the two. A target with other flags would
# silently not use it. That of the other rooms also holds our headers that most of them read: the
# model, its wire format and the head's state take 2 s of a batch. Not in Debug builds, where an
# edited header should recompile only its readers.
set(usual_headers
  <algorithm> <array> <chrono> <cstdint> <cstring> <deque> <expected> <functional> <map> <memory> <mutex> <optional>
  <set> <span> <string> <string_view> <tuple> <unordered_map> <unordered_set> <utility> <variant> <vector>
  <fmt/format.h>)
set(shared_headers base/clock.h base/file.h base/json.h base/limits.h base/log.h base/money.h base/result.h base/text.h
  core/model/job.h core/model/node.h core/model/pool.h core/model/event.h core/model/command.h
  core/wire/agent_v1.h core/wire/codec.h core/control/state.h)
list(TRANSFORM shared_headers PREPEND ${CMAKE_SOURCE_DIR}/src/)
function(billow_precompiled target)
  file(WRITE ${CMAKE_BINARY_DIR}/pch_anchor.cpp "")
  add_library(${target} OBJECT ${CMAKE_BINARY_DIR}/pch_anchor.cpp)
  target_compile_options(${target} PRIVATE ${ARGN})
  target_link_libraries(${target} PRIVATE billow_flags)
  target_precompile_headers(${target} PRIVATE ${usual_headers})
endfunction()
billow_precompiled(billow_pch)
set(other_rooms_pch billow_pch)
if(other_rooms_options)
  set(other_rooms_pch billow_pch_other)
  billow_precompiled(billow_pch_other ${other_rooms_options})
  if(NOT BILLOW_CLIENT_ONLY)
    target_precompile_headers(billow_pch_other PRIVATE ${shared_headers})
  endif()
endif()

# billow_sources(VAR [FOLDER...]): every .cpp of the current folder and the named folders below it,
# except those for another system.
function(billow_sources variable)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(folder ${ARGN})
    file(GLOB more CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${more})
  endforeach()
  if(APPLE)
    list(FILTER sources EXCLUDE REGEX "_linux\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "_darwin\\.cpp$")
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# billow_module(NAME deps... [FOLDERS folder...]): the current folder as a static library.
function(billow_module name)
  cmake_parse_arguments(M "" "" "FOLDERS" ${ARGN})
  billow_sources(sources ${M_FOLDERS})
  add_library(billow_${name} STATIC ${sources})
  target_link_libraries(billow_${name} PUBLIC billow_flags)
  foreach(dep ${M_UNPARSED_ARGUMENTS})
    target_link_libraries(billow_${name} PUBLIC billow_${dep})
  endforeach()
  if(name IN_LIST fast_rooms)
    target_precompile_headers(billow_${name} REUSE_FROM billow_pch)
  else()
    target_compile_options(billow_${name} PRIVATE ${other_rooms_options})
    target_precompile_headers(billow_${name} REUSE_FROM ${other_rooms_pch})
  endif()
  billow_batches(billow_${name})
endfunction()

# billow_program(TARGET): how the programs that people start are linked. The program is stripped;
# its symbols lie beside it in TARGET.debug, where gdb and addr2line find them through the debug
# link.
function(billow_program target)
  target_precompile_headers(${target} REUSE_FROM billow_pch)
  # Loading the shared libstdc++ would take longer than the rest of `billow --version`.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc -Wl,-z,now)
  endif()
  if(CMAKE_OBJCOPY AND NOT APPLE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(program $<TARGET_FILE:${target}>)
    add_custom_command(TARGET ${target} POST_BUILD
      COMMAND ${CMAKE_OBJCOPY} --only-keep-debug --compress-debug-sections ${program} ${program}.debug
      COMMAND ${CMAKE_OBJCOPY} --strip-all --add-gnu-debuglink=${program}.debug ${program}
      VERBATIM)
  endif()
endfunction()
