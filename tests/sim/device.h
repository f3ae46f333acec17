#ifndef SLUICE_TESTS_SIM_DEVICE_H
#define SLUICE_TESTS_SIM_DEVICE_H

#define DEVICE_NAME "sluice simulated GPU"
enum { DEVICE_PROCESSORS = 4 };

/* 16 bytes. */
void device_uuid(void *out);
int device_attribute(int attribute);

#endif
