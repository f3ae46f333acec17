/* Stands in until the interpreter of warps is there. */
#include "ptx.h"
#include "shadow.h"
#include "ptxrun.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct ptx_kernel { struct ptx_fn *fn; struct ptx_info info; struct ptx_parameter p[64]; char name[200]; struct ptx_kernel *next; };
struct ptx_module { struct ptx_mod *m; struct ptx_kernel *k; };
int64_t interim_to_host(uint64_t a, size_t n, int wr) { struct span s; if (!span_find(a, &s) || a + n > s.high) return -1; if (wr && s.shadow) shadow_set(&s, a, n); return s.to_host; }
struct ptx_module *ptx_load(const char *text, size_t bytes, char *w, size_t wn) { char *t = strndup(text, bytes); struct ptx_module *m = calloc(1, sizeof *m); m->m = ptx_load_interim(t + strspn(t, "\n")); free(t); return m; }
void ptx_unload(struct ptx_module *m) {}
struct ptx_variable *ptx_variables(struct ptx_module *m, size_t *n) { *n = 0; return 0; }
struct ptx_kernel *ptx_find(struct ptx_module *m, const char *name, char *w, size_t wn) {
 struct ptx_fn *f = ptx_find_interim(m->m, name); if (!f) { snprintf(w, wn, "no such kernel"); return 0; }
 struct ptx_kernel *k = calloc(1, sizeof *k); k->fn = f; snprintf(k->name, 200, "%s", name); k->info.name = k->name; k->info.parameters = k->p; k->info.parameter_count = ptx_nparam(f);
 for (size_t i = 0; i < k->info.parameter_count; i++) { ptx_param(f, i, &k->p[i].offset, &k->p[i].bytes); k->info.parameter_bytes = k->p[i].offset + k->p[i].bytes; }
 return k; }
const struct ptx_info *ptx_info(const struct ptx_kernel *k) { return &k->info; }
enum ptx_end ptx_run(const struct ptx_kernel *k, struct ptx_grid *g) { struct ptx_run r = {{g->grid[0], g->grid[1], g->grid[2]}, {g->block[0], g->block[1], g->block[2]}, g->dynamic_shared_bytes, (char *)g->parameters, 0, 0, 0, 0}; int e = ptx_run_interim(k->fn, &r); g->instructions = r.ninstr; return e == 700 ? PTX_ILLEGAL_ADDRESS : e ? PTX_TIMEOUT : PTX_DONE; }
