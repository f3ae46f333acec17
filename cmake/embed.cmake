# cmake -DOUT=texts.c -DTEXTS="name=path;…" -P embed.cmake: files as texts of a C program
# (device/cuda/rtc/texts.h).
set(arrays "")
set(names "")
set(texts "")
set(index 0)
foreach(text ${TEXTS})
  string(REGEX MATCH "^([^=]*)=(.*)$" whole ${text})
  set(name ${CMAKE_MATCH_1})
  file(READ ${CMAKE_MATCH_2} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  # Bytes beyond ASCII stand in comments only.
  string(REGEX REPLACE "0x[89a-f][0-9a-f]," "0x2e," bytes "${bytes}")
  string(APPEND arrays "static const char text_${index}[] = {${bytes}0};\n")
  string(APPEND names "    \"${name}\",\n")
  string(APPEND texts "    text_${index},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT} "#include \"device/cuda/rtc/texts.h\"\n\n${arrays}
const char *const rtc_text_names[] = {\n${names}};
const char *const rtc_texts[] = {\n${texts}};
const int rtc_text_count = ${index};\n")
