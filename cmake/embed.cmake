# billow_embed(TARGET NAME FILE): the file's bytes as `std::string_view billow_embedded_NAME()`
# inside TARGET. The assembler reads the file, so a large table costs no compile time, and a changed
# file rebuilds only this one object. The source is written again with it and names its hash: ccache
# does not see what the assembler reads, and would answer with the object of the old file.
#
# Run as a script (cmake -P), it writes that source.
if(CMAKE_SCRIPT_MODE_FILE)
  file(SHA256 ${EMBED_FILE} EMBED_HASH)
  configure_file(${EMBED_TEMPLATE} ${EMBED_SOURCE} @ONLY)
  file(TOUCH_NOCREATE ${EMBED_SOURCE})
  return()
endif()
set(billow_embed_script ${CMAKE_CURRENT_LIST_FILE} CACHE INTERNAL "")
function(billow_embed target name file)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp)
  set(template ${CMAKE_SOURCE_DIR}/cmake/embedded.cpp.in)
  if(APPLE)
    set(template ${CMAKE_SOURCE_DIR}/cmake/embedded_darwin.cpp.in)
  endif()
  set(write ${CMAKE_COMMAND} -DEMBED_NAME=${name} -DEMBED_FILE=${file}
    -DEMBED_TEMPLATE=${template} -DEMBED_SOURCE=${source} -P ${billow_embed_script})
  # For tools that read the list of sources before a build. Some files are made by the build only.
  if(EXISTS ${file} AND NOT EXISTS ${source})
    execute_process(COMMAND ${write} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  add_custom_command(OUTPUT ${source} COMMAND ${write}
    DEPENDS ${file} ${template} ${billow_embed_script} VERBATIM)
  set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
    SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
