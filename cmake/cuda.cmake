# The CUDA device: a plug-in that the daemon opens at run time, built where nvcc is found.
#
# C files see the daemon's headers and call what device/plugin_exports.def lists, in the program
# that opens the plug-in; .cu files (device/cuda/kernels/) see only headers of that folder, and the
# enums of tensor/dtype.h and ops/epilogue.h.
# A build for use holds machine code for the architectures below and PTX for what comes later; a
# build for tests holds PTX of one architecture as plain text (of what differs above 7.5, of 8.0 too), which the
# simulated runtime interprets.
set(SLUICE_CUDA AUTO CACHE STRING "the CUDA plug-in: AUTO (where nvcc is found), ON, OFF")
set(SLUICE_CUDA_ARCHITECTURES "75;80;86;89;90;100;120" CACHE STRING "machine code in a build for use")
set(SLUICE_CUDA_TEST_ARCHITECTURE "75" CACHE STRING "the PTX in a build with tests")
set(SLUICE_HAS_CUDA OFF)

function(sluice_find_cuda)
  if(SLUICE_CUDA STREQUAL "OFF")
    return()
  endif()
  file(GLOB places LIST_DIRECTORIES true /usr/local/cuda /usr/local/cuda-*)
  list(SORT places COMPARE NATURAL ORDER DESCENDING)
  list(TRANSFORM places APPEND /bin)
  find_program(SLUICE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin PATHS ${places})
  if(SLUICE_NVCC)
    file(REAL_PATH ${SLUICE_NVCC} nvcc)
    cmake_path(GET nvcc PARENT_PATH bin)
    cmake_path(GET bin PARENT_PATH home)
    find_library(SLUICE_CUDART cudart NO_DEFAULT_PATH
                 PATHS ${home}/lib64 ${home}/lib ${home}/targets/x86_64-linux/lib)
  endif()
  if(NOT SLUICE_NVCC OR NOT SLUICE_CUDART)
    if(SLUICE_CUDA STREQUAL "ON")
      message(FATAL_ERROR "the CUDA plug-in is wanted, but there is no nvcc with libcudart")
    endif()
    message(STATUS "CUDA plug-in left out: no nvcc (set CUDA_HOME, or put it into PATH)")
    return()
  endif()
  set(SLUICE_HAS_CUDA ON PARENT_SCOPE)
  set(SLUICE_CUDA_HOME ${home} PARENT_SCOPE)
endfunction()
sluice_find_cuda()

# Compiles kernels/*.cu to objects; out_objects gets their paths.
function(sluice_cuda_objects folder include out_objects)
  if(SLUICE_TESTS)
    set(arch ${SLUICE_CUDA_TEST_ARCHITECTURE})
    set(flags -gencode arch=compute_${arch},code=compute_${arch} --compress-mode=none -lineinfo
        -DSLUICE_GRID_BLOCKS=20)
  else()
    foreach(arch ${SLUICE_CUDA_ARCHITECTURES})
      list(APPEND flags -gencode arch=compute_${arch},code=sm_${arch})
    endforeach()
    list(GET SLUICE_CUDA_ARCHITECTURES -1 newest)
    list(APPEND flags -gencode arch=compute_${newest},code=compute_${newest})
  endif()
  list(APPEND flags -std=c++17 -O3 -Werror all-warnings -Xcompiler
       -fPIC,-fvisibility=hidden,-Wall,-Wextra,-fno-exceptions,-fno-rtti)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/kernels/*.cu)
  list(TRANSFORM include PREPEND -I OUTPUT_VARIABLE includes)
  foreach(source ${sources})
    cmake_path(GET source STEM stem)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${stem}.cu.o)
    set(own "")
    if(stem STREQUAL "pointwise")
      set(own -fmad=false) # a kernel made at run time for several steps must round as it does
    elseif(SLUICE_TESTS AND stem STREQUAL "attention16")
      set(own -gencode arch=compute_80,code=compute_80) # its form for 8.0 and above is another one
    endif()
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CCACHE} ${SLUICE_NVCC} ${flags} ${own} ${includes} -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} DEPFILE ${object}.d
      COMMENT "Building CUDA object ${stem}.cu.o" VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cuda)
  set(${out_objects} ${objects} PARENT_SCOPE)
endfunction()

# The kernels' headers as text, for what is compiled at run time (device/cuda/rtc/).
function(sluice_cuda_texts folder out_source)
  set(kernels device/cuda/kernels)
  foreach(name pointwise.cuh pointwise.h pointwise.def element.cuh launch.cuh walk.h walk.cuh)
    list(APPEND texts ${kernels}/${name}=${folder}/kernels/${name})
    list(APPEND files ${folder}/kernels/${name})
  endforeach()
  foreach(name dtype.h dtype.def)
    list(APPEND texts tensor/${name}=${CMAKE_CURRENT_SOURCE_DIR}/tensor/${name})
    list(APPEND files ${CMAKE_CURRENT_SOURCE_DIR}/tensor/${name})
  endforeach()
  foreach(name math.h stdint.h stddef.h stdbool.h cuda_runtime.h cuda_runtime_api.h cuda_fp16.h
               cuda_bf16.h)
    list(APPEND texts ${name}=${folder}/rtc/standard.cuh)
  endforeach()
  set(out ${CMAKE_CURRENT_BINARY_DIR}/cuda/texts.c)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -DOUT=${out} "-DTEXTS=${texts}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${files} ${folder}/rtc/standard.cuh ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    COMMENT "Embedding the kernels' headers" VERBATIM)
  set(${out_source} ${out} PARENT_SCOPE)
endfunction()

function(sluice_cuda_plugin)
  set(folder ${CMAKE_CURRENT_SOURCE_DIR}/device/cuda)
  set(root ${CMAKE_BINARY_DIR}/include-map/device_cuda)
  file(MAKE_DIRECTORY ${root}/device)
  file(CREATE_LINK ${folder} ${root}/device/cuda SYMBOLIC)
  # Of other folders kernels see only enums: types of elements, activations.
  sluice_cuda_objects(${folder} "${root};${root}/../tensor;${root}/../ops" objects)
  file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c ${folder}/*/*.c)
  sluice_cuda_texts(${folder} texts)
  add_library(sluice-cuda MODULE ${sources} ${texts} ${objects})
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  target_include_directories(sluice-cuda PRIVATE ${root}
                             $<TARGET_PROPERTY:device,INTERFACE_INCLUDE_DIRECTORIES> ${SLUICE_BORDER})
  add_dependencies(sluice-cuda plugin_border)
  target_include_directories(sluice-cuda SYSTEM PRIVATE ${SLUICE_CUDA_HOME}/include)
  if(SLUICE_TESTS) # small pieces, so that there are several
    set_source_files_properties(${folder}/blas/bytes.c PROPERTIES
                                COMPILE_DEFINITIONS SLUICE_CHUNK_BYTES=16384)
  endif()
  # Kernels' host halves call a little of libstdc++; libcudart is found by the system, or beside
  # the toolkit it was built with (LD_LIBRARY_PATH goes first: tests put a simulated one there).
  target_link_libraries(sluice-cuda PRIVATE ${SLUICE_CUDART} ${CMAKE_DL_LIBS} stdc++ m)
  target_link_options(sluice-cuda PRIVATE LINKER:--enable-new-dtags)
  set_target_properties(sluice-cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  install(TARGETS sluice-cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/sluice COMPONENT cuda)
endfunction()
