/* The compiled .proto files (a FileDescriptorSet), embedded for server reflection. */
#include "proto/descriptors.h"

__asm__(".section .rodata\n"
        ".balign 16\n"
        ".global proto_descriptor_set\n"
        ".hidden proto_descriptor_set\n"
        "proto_descriptor_set:\n"
        ".incbin \"" DESCRIPTOR_SET_FILE "\"\n"
        ".global proto_descriptor_set_end\n"
        ".hidden proto_descriptor_set_end\n"
        "proto_descriptor_set_end:\n"
        ".byte 0\n"
        ".previous\n");
