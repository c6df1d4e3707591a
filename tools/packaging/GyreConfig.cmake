# find_package(Gyre): the target Gyre::gyre, which is libgyre.so with its headers, of the package that this file is in.
get_filename_component(_gyre_prefix "${CMAKE_CURRENT_LIST_FILE}" REALPATH)
get_filename_component(_gyre_prefix "${_gyre_prefix}/../../../.." ABSOLUTE)
if(NOT TARGET Gyre::gyre)
  add_library(Gyre::gyre SHARED IMPORTED)
  set_target_properties(Gyre::gyre PROPERTIES
    IMPORTED_LOCATION "${_gyre_prefix}/lib/libgyre.so"
    IMPORTED_SONAME libgyre.so
    INTERFACE_INCLUDE_DIRECTORIES "${_gyre_prefix}/include")
endif()
unset(_gyre_prefix)
