/* The FileDescriptorSet of every .proto file: bytes [proto_descriptor_set,
 * proto_descriptor_set_end). */
#ifndef PROTO_DESCRIPTORS_H
#define PROTO_DESCRIPTORS_H

extern const unsigned char proto_descriptor_set[];
extern const unsigned char proto_descriptor_set_end[];

#endif
