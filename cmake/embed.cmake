# billow_embed(TARGET NAME FILE): the file's bytes as `std::string_view billow_embedded_NAME()`
# inside TARGET. The assembler reads the file, so a large table costs no compile time, and a changed
# file rebuilds only this one object.
function(billow_embed target name file)
  set(EMBED_NAME ${name})
  set(EMBED_FILE ${file})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/embedded_${name}.cpp)
  set(template embedded.cpp.in)
  if(APPLE)
    set(template embedded_darwin.cpp.in)
  endif()
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${template} ${source} @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file}
    SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${source})
endfunction()
