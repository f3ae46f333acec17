# Outside libraries, each used by the folders that DESIGN names and by no other.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(EVENT REQUIRED IMPORTED_TARGET libevent_core)
pkg_check_modules(EVENT_PTHREADS REQUIRED IMPORTED_TARGET libevent_pthreads)
pkg_check_modules(NGHTTP2 REQUIRED IMPORTED_TARGET libnghttp2)
pkg_check_modules(PROTOBUF_C REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.h REQUIRED)
find_library(M_LIBRARY m REQUIRED)
find_program(PROTOC_C protoc-c REQUIRED)

# Headers of outside libraries do not answer to our warnings.
# oneDNN itself is opened at run time (device/cpu/onednn/onednn_library.c), and so is libgomp (team.c).
add_library(dnnl INTERFACE)
target_include_directories(dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(dnnl INTERFACE ${CMAKE_DL_LIBS})
# LeakSanitizer stumbles over thread-local memory of libraries that come later: there they come first.
if(SLUICE_ASAN OR SLUICE_FUZZ)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  target_link_libraries(dnnl INTERFACE -Wl,--no-as-needed ${DNNL_LIBRARY} -Wl,--as-needed)
endif()
