# cmake -DOUT=plugin_border.h -DFILES="path;…" -P border.cmake: one number of all that a plug-in sees of the
# program (device/plugin.h).
set(texts "")
foreach(file ${FILES})
  file(SHA256 ${file} hash)
  string(APPEND texts ${hash})
endforeach()
string(SHA256 border "${texts}")
file(WRITE ${OUT} "#define PLUGIN_BORDER \"${border}\"\n")
