#include "../space.h"
#pragma once
#include <stddef.h>
struct ptx_mod; struct ptx_fn;
struct ptx_run { unsigned g[3], b[3]; size_t dynsmem; char *params; int (*check)(const void *, size_t); int rev, err; long ninstr; };
struct ptx_mod *ptx_load_interim(const char *text);
struct ptx_fn *ptx_find_interim(struct ptx_mod *, const char *name);
int ptx_nparam(struct ptx_fn *); void ptx_param(struct ptx_fn *, int i, size_t *off, size_t *sz);
int ptx_run_interim(struct ptx_fn *, struct ptx_run *);
