#ifndef SLUICE_TESTS_SIM_DEVICE_H
#define SLUICE_TESTS_SIM_DEVICE_H

#include <stdbool.h>

#define DEVICE_NAME "sluice simulated GPU"
enum { DEVICE_PROCESSORS = 4 };

/* 16 bytes. */
void device_uuid(int device, void *out);
bool device_is_known(int device);
/* The device that the thread has made current. */
int device_current(void);
/* A finding, and false, when what belongs to `device` is used while another one is current. */
bool device_is_own(int device, const char *call);
int device_attribute(int device, int attribute);

#endif
