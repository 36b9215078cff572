# For programs in C, C++ and Fortran:
#   find_package(gridloom REQUIRED)
#   target_link_libraries(program gridloom::gridloom)     or gridloom::static
# It can be moved together with its folder.
get_filename_component(gridloom_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET gridloom::gridloom)
  add_library(gridloom::gridloom SHARED IMPORTED)
  set_target_properties(gridloom::gridloom PROPERTIES
    IMPORTED_LOCATION "${gridloom_PREFIX}/lib/libgridloom.so"
    IMPORTED_SONAME "libgridloom.so"
    INTERFACE_INCLUDE_DIRECTORIES "${gridloom_PREFIX}/include")
  add_library(gridloom::static STATIC IMPORTED)
  set_target_properties(gridloom::static PROPERTIES
    IMPORTED_LOCATION "${gridloom_PREFIX}/lib/libgridloom.a"
    INTERFACE_INCLUDE_DIRECTORIES "${gridloom_PREFIX}/include"
    INTERFACE_LINK_LIBRARIES "pthread;m;dl;gcc_s")
endif()

# The Fortran module's source, compiled with the program, since each compiler has its own format of module files:
#   add_executable(program program.f90 ${gridloom_FORTRAN})
set(gridloom_FORTRAN "${gridloom_PREFIX}/include/grpc.f90")

foreach(gridloom_file
    "${gridloom_PREFIX}/lib/libgridloom.so" "${gridloom_PREFIX}/lib/libgridloom.a" "${gridloom_PREFIX}/include/grpc.h")
  if(NOT EXISTS "${gridloom_file}")
    set(gridloom_FOUND FALSE)
    set(gridloom_NOT_FOUND_MESSAGE "${gridloom_file} is missing: run 'make capi', or install all of it again")
  endif()
endforeach()
