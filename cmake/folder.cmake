# One folder of daemon/ = one static library that names the folders it may include from.
#
#   sluice_folder(engine USES graph device memory)
#
# A folder sees only the headers of the folders it names, and of those that they name: an include
# that points up the map does not compile.  Each folder's public include root is a staging folder
# holding one link, so `#include "engine/engine.h"` works only for users of `engine`.
function(sluice_folder name)
  cmake_parse_arguments(ARG "EXPORTED" "" "USES;LIBS;PRIVATE_LIBS" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*.c
       ${CMAKE_CURRENT_SOURCE_DIR}/${name}/*/*.c)
  if(name STREQUAL "device")
    file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/device/*.c)
  endif()
  # *_avx2.c and *_avx512.c hold the same kernels for other instruction sets, chosen at run time.
  # With a sanitizer's checks in their loops, -O3 would take minutes a file.
  set(kernels -O3)
  if(SLUICE_ASAN OR SLUICE_TSAN OR SLUICE_FUZZ)
    set(kernels -O1)
  endif()
  foreach(source ${sources})
    if(source MATCHES "_avx2\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;${kernels}")
    elseif(source MATCHES "_avx512\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mfma;-mf16c;-mprefer-vector-width=512;${kernels}")
    elseif(source MATCHES "/(conv_gemm|conv_integer|conv_bytes|convert|int_gemm|qlinear|quantize)\\.c$") # loops that the compiler makes vectors of
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${kernels}")
    elseif(source MATCHES "_avxvnni\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavxvnni;${kernels}")
    elseif(source MATCHES "_vnni\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS
        "-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mprefer-vector-width=512;${kernels}")
    endif()
  endforeach()
  set(root ${CMAKE_BINARY_DIR}/include-map/${target})
  get_filename_component(parent ${root}/${name} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR}/${name} ${root}/${name} SYMBOLIC)
  if(sources)
    add_library(${target} STATIC ${sources})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE ${ARG_PRIVATE_LIBS})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME sluice_${target})
    if(ARG_EXPORTED)
      target_compile_options(${target} PRIVATE -fvisibility=default -fno-semantic-interposition)
    endif()
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} ${root})
  target_link_libraries(${target} ${scope} ${ARG_USES} ${ARG_LIBS})
endfunction()
