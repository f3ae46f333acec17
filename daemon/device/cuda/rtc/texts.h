/* Headers as text, for code that is compiled while the program runs; made by cmake/embed.cmake. */
#ifndef DEVICE_CUDA_RTC_TEXTS_H
#define DEVICE_CUDA_RTC_TEXTS_H

extern const char *const rtc_text_names[]; /* as #include has them */
extern const char *const rtc_texts[];
extern const int rtc_text_count;

#endif
