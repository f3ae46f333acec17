/* ptxrun.c - a small PTX interpreter: runs the PTX that nvcc/NVRTC emitted, one
 * thread at a time between barriers, with address checks and a shared-memory race check. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ctype.h>
#include "ptxrun.h"
extern int64_t interim_to_host(uint64_t a, size_t n, int wr);
enum { U8, U16, U32, U64, S8, S16, S32, S64, B8, B16, B32, B64, F16, BF16, F16X2, BF16X2, F32, F64, PRED, NT };
static const char *tn[NT] = {"u8","u16","u32","u64","s8","s16","s32","s64","b8","b16","b32","b64","f16","bf16","f16x2","bf16x2","f32","f64","pred"};
static const int tsz[NT] = {1,2,4,8,1,2,4,8,1,2,4,8,2,2,4,4,4,8,1};
enum { K_NONE, K_REG, K_IMM, K_SPEC, K_SYM, K_LABEL, K_VEC, K_SINK };
enum { SP_GEN, SP_PARAM, SP_SHARED, SP_LOCAL, SP_GLOBAL };
struct opnd { int k, r, r2, neg; uint64_t imm; int64_t off; int sp, n, v[4]; uint64_t vi[4]; };
#define MAXM 8
struct ins { char op[16], m[MAXM][16]; int nm, t, t2, pred, pneg, line, src, nop, code; struct opnd o[6]; int target; };
struct sym { char name[200]; int sp; size_t off, size; };
struct ptx_fn { char name[200]; struct ins *I; int n, nreg; struct sym *par; int npar; size_t shsize, locsize; struct ptx_fn *next; };
struct ptx_mod { struct ptx_fn *f; struct sym gs[64]; int ngs; };
struct cx { struct ptx_mod *m; struct ptx_fn *f; struct { char n[64]; int i; } *regs; int nregs, cap; struct { char n[64]; int at; } lab[4096]; int nlab; struct sym loc[64]; int nloc; size_t sh, lo; int src; };
static const char *OPS[] = {"mov","ld","st","cvta","add","sub","mul","mad","fma","div","rem","neg","abs","min","max","and","or","xor","not","shl","shr","setp","selp","cvt","bra","ret","exit","bar","barrier","shfl","vote","atom","red","ex2","lg2","rcp","rsqrt","sqrt","sin","cos","tanh","copysign","popc","clz","bfind","brev","bfe","bfi","prmt","membar","fence","activemask","ldu","shf",0};
enum { MOV,LD,ST,CVTA,ADD,SUB,MUL,MAD,FMA_,DIV,REM,NEG,ABS,MIN_,MAX_,AND,OR,XOR,NOT,SHL,SHR,SETP,SELP,CVT,BRA,RET,EXIT,BAR,BARRIER,SHFL,VOTE,ATOM,RED,EX2,LG2,RCP,RSQRT,SQRT_,SIN_,COS_,TANH_,COPYSIGN,POPC,CLZ,BFIND,BREV,BFE,BFI,PRMT,MEMBAR,FENCE,ACTMASK,LDU,SHF };
/* ---------------- parser ---------------- */
static int reg(struct cx *c, const char *n) { for (int i = c->nregs - 1; i >= 0; i--) if (!strcmp(c->regs[i].n, n)) return i; if (c->nregs == c->cap) c->regs = realloc(c->regs, (c->cap = c->cap * 2 + 256) * sizeof *c->regs); snprintf(c->regs[c->nregs].n, 64, "%s", n); return c->nregs++; }
static struct sym *findsym(struct cx *c, const char *n) { for (int i = 0; i < c->nloc; i++) if (!strcmp(c->loc[i].name, n)) return &c->loc[i]; for (int i = 0; i < c->f->npar; i++) if (!strcmp(c->f->par[i].name, n)) return &c->f->par[i]; for (int i = 0; i < c->m->ngs; i++) if (!strcmp(c->m->gs[i].name, n)) return &c->m->gs[i]; return 0; }
static int spec(const char *n) { static const char *s[] = {"%tid.x","%tid.y","%tid.z","%ntid.x","%ntid.y","%ntid.z","%ctaid.x","%ctaid.y","%ctaid.z","%nctaid.x","%nctaid.y","%nctaid.z","%laneid","%warpid","WARP_SZ","%lanemask_lt","%lanemask_eq","%lanemask_ge",0}; for (int i = 0; s[i]; i++) if (!strcmp(s[i], n)) return i; return -1; }
static void operand(struct cx *c, char *s, struct opnd *o) {
  memset(o, 0, sizeof *o); while (isspace((unsigned char)*s)) s++; char *e = s + strlen(s); while (e > s && isspace((unsigned char)e[-1])) *--e = 0;
  if (*s == '!') { o->neg = 1; s++; }
  if (*s == '{') { o->k = K_VEC; char *sv, *t = strtok_r(s + 1, ",} \t", &sv); while (t && o->n < 4) {  { if (isdigit((unsigned char)*t)) { o->vi[o->n] = strtoull(t, 0, 0); o->v[o->n++] = -2; } else o->v[o->n++] = *t == '_' ? -1 : reg(c, t); } t = strtok_r(0, ",} \t", &sv); } return; }
  if (*s == '[') { s[strlen(s) - 1] = 0; s++; char *p = strpbrk(s + 1, "+"); int64_t off = 0; if (p) { off = strtoll(p + 1, 0, 0); *p = 0; } struct opnd b; operand(c, s, &b); *o = b; o->off += off; return; }
  if (*s == '_' && !s[1]) { o->k = K_SINK; return; }
  if (*s == '%' || !strcmp(s, "WARP_SZ")) { int q = spec(s); if (q >= 0) { o->k = K_SPEC; o->r = q; return; } char *bar = strchr(s, '|'); o->k = K_REG; o->r2 = -1; if (bar) { *bar = 0; o->r2 = reg(c, bar + 1); } o->r = reg(c, s); return; }
  if (s[0] == '0' && (s[1] == 'f' || s[1] == 'F')) { o->k = K_IMM; o->imm = strtoul(s + 2, 0, 16); return; }
  if (s[0] == '0' && (s[1] == 'd' || s[1] == 'D')) { o->k = K_IMM; o->imm = strtoull(s + 2, 0, 16); return; }
  if (isdigit((unsigned char)*s) || *s == '-') { o->k = K_IMM; o->imm = *s == '-' ? (uint64_t)strtoll(s, 0, 0) : strtoull(s, 0, 0); return; }
  struct sym *y = findsym(c, s); if (y) { o->k = K_SYM; o->sp = y->sp; o->off = y->off; return; }
  for (char *q = s; *q; q++) if (*q == '.' ) {} o->k = K_REG; o->r2 = -1; o->r = reg(c, s);   /* named temp of an inline-asm block, or a label (fixed up) */
  o->imm = 0; }
static void var(struct cx *c, char *s) {   /* ".shared .align 4 .b8 name[128]" etc. */
  int sp = strstr(s, ".shared") ? SP_SHARED : strstr(s, ".local") ? SP_LOCAL : SP_GLOBAL, al = 1; char *p = strstr(s, ".align"); if (p) al = atoi(p + 6);
  char *br = strchr(s, '['); size_t cnt = 1; if (br) { cnt = br[1] == ']' ? 0 : strtoul(br + 1, 0, 0); *br = 0; } int esz = 1; for (int t = 0; t < NT; t++) { char b[12]; snprintf(b, 12, ".%s ", tn[t]); if (strstr(s, b)) esz = tsz[t]; }
  char *n = s + strlen(s); while (n > s && !isspace((unsigned char)n[-1])) n--; struct sym y = {.sp = sp, .size = cnt * esz}; snprintf(y.name, 200, "%s", n);
  size_t *a = sp == SP_LOCAL ? &c->lo : &c->sh; if (!c->f) { y.off = (size_t)-1; c->m->gs[c->m->ngs++] = y; return; }
  *a = (*a + al - 1) / al * al; y.off = *a; *a += y.size; c->loc[c->nloc++] = y; }
static void instr(struct cx *c, char *s, int line) {
  struct ptx_fn *f = c->f; if ((f->n & 255) == 0) f->I = realloc(f->I, (f->n + 256) * sizeof *f->I); struct ins *i = &f->I[f->n]; memset(i, 0, sizeof *i); i->pred = -1; i->t = i->t2 = -1; i->line = line; i->src = c->src; i->target = -1;
  while (isspace((unsigned char)*s)) s++;
  if (*s == '@') { s++; if (*s == '!') { i->pneg = 1; s++; } char b[64]; int k = 0; while (!isspace((unsigned char)*s)) b[k++] = *s++; b[k] = 0; i->pred = reg(c, b); while (isspace((unsigned char)*s)) s++; }
  char w[160]; int k = 0; while (*s && !isspace((unsigned char)*s) && k < 159) w[k++] = *s++; w[k] = 0; char *sv, *t = strtok_r(w, ".", &sv); snprintf(i->op, 16, "%s", t); i->code = -1; for (int q = 0; OPS[q]; q++) if (!strcmp(OPS[q], i->op)) i->code = q;
  while ((t = strtok_r(0, ".", &sv))) { int is = 0; for (int q = 0; q < NT; q++) if (!strcmp(t, tn[q])) { if (i->t < 0) i->t = q; else i->t2 = q; is = 1; } if (!is && i->nm < MAXM) snprintf(i->m[i->nm++], 16, "%s", t); }
  char *st = s; int d = 0; for (;; s++) { if (*s == '{' || *s == '[') d++; if (*s == '}' || *s == ']') d--; if ((*s == ',' && !d) || !*s) { int end = !*s; *s = 0; char *q = st; while (isspace((unsigned char)*q)) q++; if (*q && i->nop < 6) { if (i->code == BRA) { snprintf(i->m[MAXM - 1], 16, "L"); for (int l = 0;; l++) if (l == c->nlab) { char *z = q + strlen(q); while (isspace((unsigned char)z[-1])) *--z = 0; snprintf(c->lab[c->nlab].n, 64, "%s", q); c->lab[c->nlab].at = -1; i->target = c->nlab++; break; } else { char *z = q + strlen(q); while (isspace((unsigned char)z[-1])) *--z = 0; if (!strcmp(c->lab[l].n, q)) { i->target = l; break; } } } else operand(c, q, &i->o[i->nop++]); } st = s + 1; if (end) break; } }
  if (i->code < 0) fprintf(stderr, "ptx: line %d: opcode %s not implemented\n", line, i->op);
  f->n++; }
struct ptx_mod *ptx_load_interim(const char *text) {
  struct cx *c = calloc(1, sizeof *c); c->m = calloc(1, sizeof *c->m); char *T = strdup(text), *p = T; int line = 1, body = 0;
  for (char *q = T; *q; q++) if (q[0] == '/' && q[1] == '/') while (*q && *q != '\n') *q++ = ' ';
  while (*p) { while (isspace((unsigned char)*p)) if (*p++ == '\n') line++; if (!*p) break;
    if (!body) { if (!strncmp(p, ".section", 8)) break; char *e = strpbrk(p, ";({\n"); if (!e) break; int ent = !strncmp(p, ".visible .entry", 15) || !strncmp(p, ".entry", 6) || !strncmp(p, ".weak .entry", 12);
      if (ent) { e = strchr(p, '('); struct ptx_fn *f = calloc(1, sizeof *f); char *n = e; while (isspace((unsigned char)n[-1])) n--; char *b = n; while (!isspace((unsigned char)b[-1])) b--; snprintf(f->name, 200, "%.*s", (int)(n - b), b); f->next = c->m->f; c->m->f = f; c->f = f; c->nregs = c->nlab = c->nloc = 0; c->sh = c->lo = 0;
        f->par = calloc(64, sizeof *f->par); char *cl = strchr(e, ')'); size_t off = 0; char *a = e + 1; for (char *q = a; q <= cl; q++) { if (*q == '\n') line++; if (*q == ',' || q == cl) { char sc = *q; *q = 0; if (strstr(a, ".param")) { int al = 0, es = 1; size_t cnt = 1; char *x = strstr(a, ".align"); if (x) al = atoi(x + 6); char *br = strchr(a, '['); if (br) { cnt = strtoul(br + 1, 0, 0); *br = 0; } for (int t = 0; t < NT; t++) { char bb[12]; snprintf(bb, 12, ".%s ", tn[t]); if (strstr(a, bb)) es = tsz[t]; } if (!al) al = es; char *z = a + strlen(a); while (isspace((unsigned char)z[-1])) *--z = 0; char *nn = z; while (!isspace((unsigned char)nn[-1])) nn--; off = (off + al - 1) / al * al; struct sym y = {.sp = SP_PARAM, .off = off, .size = cnt * es}; snprintf(y.name, 200, "%s", nn); f->par[f->npar++] = y; off += cnt * es; } a = q + 1; (void)sc; } }
        p = strchr(cl + 1, '{') + 1; body = 1; continue; }
      char b[400]; snprintf(b, 400, "%.*s", (int)(e - p), p); if (*e == ';' && (strstr(b, ".shared") || strstr(b, ".global"))) { c->f = 0; var(c, b); } p = e + 1; if (e[0] == '\n') line++; continue; }
    if (*p == '{') { body++; p++; continue; } if (*p == '}') { p++; if (--body == 0) { struct ptx_fn *f = c->f; for (int i = 0; i < f->n; i++) if (f->I[i].target >= 0) f->I[i].target = c->lab[f->I[i].target].at; f->nreg = c->nregs; f->shsize = c->sh; f->locsize = c->lo; for (int i = 0; i < f->n; i++) for (int k = 0; k < f->I[i].nop; k++) if (f->I[i].o[k].k == K_SYM && f->I[i].o[k].off == -1) { f->I[i].o[k].off = (f->shsize + 15) & ~15ul; } } continue; }
    if ((!strncmp(p, ".loc", 4) && isspace((unsigned char)p[4])) || !strncmp(p, ".file", 5)) { if (p[1] == 'l') { strtol(p + 4, &p, 10); c->src = strtol(p, &p, 10); } while (*p && *p != '\n') p++; continue; }
    char *e = p; int d = 0; while (*e && !(*e == ';' && !d) && *e != ':' ) { if (*e == '{') d++; if (*e == '}') { if (!d) break; d--; } if (*e == ':' ) break; e++; }
    if (*e == ':') { char b[64]; snprintf(b, 64, "%.*s", (int)(e - p), p); int l; for (l = 0; l < c->nlab; l++) if (!strcmp(c->lab[l].n, b)) break; if (l == c->nlab) snprintf(c->lab[c->nlab++].n, 64, "%s", b); c->lab[l].at = c->f->n; p = e + 1; continue; }
    char buf[600]; snprintf(buf, 600, "%.*s", (int)(e - p), p); int ln = line; for (char *q = p; q < e; q++) if (*q == '\n') line++; p = *e == ';' ? e + 1 : e;
    if (buf[0] == '.') { if (strstr(buf, ".shared") || strstr(buf, ".local")) var(c, buf); continue; }
    if (buf[0]) instr(c, buf, ln); }
  free(T); return c->m; }
struct ptx_fn *ptx_find_interim(struct ptx_mod *m, const char *n) { for (struct ptx_fn *f = m->f; f; f = f->next) if (!strcmp(f->name, n)) return f; return 0; }
int ptx_nparam(struct ptx_fn *f) { return f->npar; }
void ptx_param(struct ptx_fn *f, int i, size_t *off, size_t *sz) { *off = f->par[i].off; *sz = f->par[i].size; }
/* ---------------- executor ---------------- */
struct shadow { int w, we, r, re; };
struct th { uint64_t *R; int pc, st; char *loc; };
static struct ptx_run *RN; static struct ptx_fn *FN; static char *SH; static struct shadow *SD; static size_t SHN; static int EP, CURT; static unsigned tid3[3], bid3[3]; static long nins;
static void fail(struct ins *i, const char *m, uint64_t a) { if (!RN->err) { fprintf(stderr, "ptx: %s: block (%u,%u,%u) thread %d: source line %d, PTX line %d (%s): %s 0x%lx\n", FN->name, bid3[0], bid3[1], bid3[2], CURT, i->src, i->line, i->op, m, (long)a); RN->err = 700; } }
static uint64_t get(struct th *t, struct opnd *o) {
  switch (o->k) { case K_REG: return o->neg ? !t->R[o->r] : t->R[o->r]; case K_IMM: return o->imm; case K_SYM: return o->sp == SP_LOCAL ? (uint64_t)(t->loc + o->off) : (uint64_t)o->off;
  case K_SPEC: { unsigned l = CURT & 31; unsigned v[] = {tid3[0], tid3[1], tid3[2], RN->b[0], RN->b[1], RN->b[2], bid3[0], bid3[1], bid3[2], RN->g[0], RN->g[1], RN->g[2], l, CURT >> 5, 32, (1u << l) - 1, 1u << l, ~((1u << l) - 1)}; return v[o->r]; } }
  return 0; }
static float f32(uint64_t v) { uint32_t u = v; float f; memcpy(&f, &u, 4); return f; } static uint64_t uf(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static double f64(uint64_t v) { double f; memcpy(&f, &v, 8); return f; } static uint64_t ud(double f) { uint64_t u; memcpy(&u, &f, 8); return u; }
static float h2f(uint64_t v) { uint16_t u = v; _Float16 h; memcpy(&h, &u, 2); return h; } static uint64_t f2h(float f) { _Float16 h = f; uint16_t u; memcpy(&u, &h, 2); return u; }
static float b2f(uint64_t v) { return f32((uint32_t)(uint16_t)v << 16); } static uint64_t f2b(float f) { uint32_t u = uf(f); if (f != f) return 0x7fff; return (u + 0x7fff + ((u >> 16) & 1)) >> 16; }
static double ldf(int t, uint64_t v) { return t == F32 ? f32(v) : t == F64 ? f64(v) : t == F16 ? h2f(v) : b2f(v); } static uint64_t stf(int t, double d) { return t == F32 ? uf(d) : t == F64 ? ud(d) : t == F16 ? f2h(d) : f2b(d); }
static int64_t sx(int t, uint64_t v) { switch (t) { case S8: return (int8_t)v; case S16: return (int16_t)v; case S32: return (int32_t)v; case U8: case B8: return (uint8_t)v; case U16: case B16: return (uint16_t)v; case U32: case B32: return (uint32_t)v; } return v; }
static uint64_t zx(int t, uint64_t v) { switch (tsz[t]) { case 1: return t == PRED ? !!v : (uint8_t)v; case 2: return (uint16_t)v; case 4: return (uint32_t)v; } return v; }
static int has(struct ins *i, const char *m) { for (int k = 0; k < i->nm; k++) if (!strcmp(i->m[k], m)) return 1; return 0; }
static int isf(int t) { return t >= F16 && t <= F64; } static int sgn(int t) { return t >= S8 && t <= S64; }
static void *addr(struct th *t, struct ins *i, struct opnd *o, int n, int wr) {
  int sp = has(i, "param") ? SP_PARAM : has(i, "shared") ? SP_SHARED : has(i, "local") ? SP_LOCAL : SP_GEN; uint64_t a = o->k == K_SYM ? (uint64_t)o->off : t->R[o->r] + o->off;
  if (sp == SP_PARAM) return RN->params + a;
  if (sp == SP_LOCAL) return o->k == K_SYM ? t->loc + a : a < (1u << 20) ? t->loc + a : (char *)a;
  char *p = (char *)a; if (sp == SP_SHARED) { if (a + n > SHN) { fail(i, "shared address out of range", a); return 0; } p = SH + a; }
  if (p >= SH && p < SH + SHN) { for (int k = 0; k < n; k++) { struct shadow *s = &SD[p - SH + k]; int me = CURT + 1;
      if (s->w && s->we == EP && s->w != me) { fail(i, wr ? "shared write/write race at" : "shared write/read race at", p - SH); break; } if (wr && s->re == EP && s->r && s->r != me) { fail(i, "shared read/write race at", p - SH); break; }
      if (wr) { s->w = me; s->we = EP; } else if (s->re == EP && s->r != me) s->r = -1; else { s->r = me; s->re = EP; } } return p; }
  if (p >= t->loc && p < t->loc + FN->locsize) return p;
  int64_t d = interim_to_host(a, n, wr); if (d == -1) { fail(i, wr ? "invalid global write" : "invalid global read", a); return 0; }
  if (a % (n > 16 ? 16 : n)) { fail(i, "misaligned address", a); return 0; }
  return p + d; }
static void ldst(void *p, uint64_t *v, int n, int st) { if (st) memcpy(p, v, n); else { *v = 0; memcpy(v, p, n); } }
static double rnd(struct ins *i, double d) { if (has(i, "rzi") || has(i, "rz")) return trunc(d); if (has(i, "rmi") || has(i, "rm")) return floor(d); if (has(i, "rpi") || has(i, "rp")) return ceil(d); return nearbyint(d); }
static uint64_t arith(struct ins *i, int op, int t, uint64_t a, uint64_t b, uint64_t c) {
  if (t == F16X2 || t == BF16X2) { int h = t == F16X2 ? F16 : BF16; return zx(B16, arith(i, op, h, a & 0xffff, b & 0xffff, c & 0xffff)) | zx(B16, arith(i, op, h, a >> 16, b >> 16, c >> 16)) << 16; }
  if (t == F32) { float x = f32(a), y = f32(b), z = f32(c), r = 0; switch (op) { case ADD: r = x + y; if (has(i, "rm")) {} break; case SUB: r = x - y; break; case MUL: r = x * y; break; case FMA_: case MAD: { if (has(i, "rm")) { double d = fma((double)x, (double)y, (double)z); r = d; if ((double)r > d) r = nextafterf(r, -INFINITY); } else r = fmaf(x, y, z); break; } case DIV: r = x / y; break; case MIN_: r = fminf(x, y); break; case MAX_: r = fmaxf(x, y); break; } if (has(i, "sat")) r = fminf(fmaxf(r, 0), 1); return uf(r); }
  if (isf(t)) { double x = ldf(t, a), y = ldf(t, b), z = ldf(t, c), r = 0; switch (op) { case ADD: r = x + y; break; case SUB: r = x - y; break; case MUL: r = x * y; break; case FMA_: case MAD: r = fma(x, y, z); break; case DIV: r = x / y; break; case MIN_: r = fmin(x, y); break; case MAX_: r = fmax(x, y); break; } return stf(t, r); }
  int64_t x = sx(t, a), y = sx(t, b), z = sx(t, c); int s = sgn(t);
  switch (op) { case ADD: return zx(t, x + y); case SUB: return zx(t, x - y); case MIN_: return zx(t, s ? (x < y ? x : y) : ((uint64_t)x < (uint64_t)y ? x : y)); case MAX_: return zx(t, s ? (x > y ? x : y) : ((uint64_t)x > (uint64_t)y ? x : y));
  case DIV: return y ? zx(t, s ? x / y : (int64_t)((uint64_t)x / (uint64_t)y)) : ~0ull; case REM: return y ? zx(t, s ? x % y : (int64_t)((uint64_t)x % (uint64_t)y)) : (uint64_t)x;
  case MUL: case MAD: { if (has(i, "wide")) return (uint64_t)(x * y) + (op == MAD ? c : 0); if (has(i, "hi")) { if (tsz[t] == 8) return (uint64_t)((s ? (__int128)x * y : (__int128)((unsigned __int128)(uint64_t)x * (uint64_t)y)) >> 64) + (op == MAD ? c : 0); return zx(t, ((x * y) >> (8 * tsz[t])) + (op == MAD ? z : 0)); } return zx(t, (uint64_t)x * (uint64_t)y + (op == MAD ? (uint64_t)z : 0)); } }
  return 0; }
static int cmp(struct ins *i, int t, uint64_t a, uint64_t b) {
  const char *c = i->m[0]; int r; if (isf(t)) { double x = ldf(t, a), y = ldf(t, b); int un = isnan(x) || isnan(y); if (!strcmp(c, "num")) return !un; if (!strcmp(c, "nan")) return un; int u = strlen(c) == 3; r = !strncmp(c, "eq", 2) ? x == y : !strncmp(c, "ne", 2) ? (u ? x != y : x < y || x > y) : !strncmp(c, "lt", 2) ? x < y : !strncmp(c, "le", 2) ? x <= y : !strncmp(c, "gt", 2) ? x > y : x >= y; return u ? r || un : r; }
  int64_t x = sx(t, a), y = sx(t, b); if (sgn(t)) return !strcmp(c, "eq") ? x == y : !strcmp(c, "ne") ? x != y : !strcmp(c, "lt") ? x < y : !strcmp(c, "le") ? x <= y : !strcmp(c, "gt") ? x > y : x >= y;
  uint64_t u = x, v = y; return !strcmp(c, "eq") ? u == v : !strcmp(c, "ne") ? u != v : !strcmp(c, "lt") || !strcmp(c, "lo") ? u < v : !strcmp(c, "le") || !strcmp(c, "ls") ? u <= v : !strcmp(c, "gt") || !strcmp(c, "hi") ? u > v : u >= v; }
static uint64_t cvt(struct ins *i, int d, int s, uint64_t v) {
  if (isf(s) && isf(d)) { double x = ldf(s, v); if (has(i, "rni") || has(i, "rzi") || has(i, "rmi") || has(i, "rpi")) x = rnd(i, x); if (has(i, "sat")) x = isnan(x) ? 0 : x < 0 ? 0 : x > 1 ? 1 : x; return stf(d, x); }
  if (isf(s)) { double x = rnd(i, ldf(s, v)); int b = 8 * tsz[d]; double lo = sgn(d) ? -ldexp(1, b - 1) : 0, hi = ldexp(1, sgn(d) ? b - 1 : b); if (isnan(x)) return 0; if (x <= lo) return zx(d, sgn(d) ? (uint64_t)1 << (b - 1) : 0); if (x >= hi) return zx(d, sgn(d) ? ((uint64_t)1 << (b - 1)) - 1 : ~0ull); return zx(d, sgn(d) ? (uint64_t)(int64_t)x : (uint64_t)x); }
  if (isf(d)) { int64_t x = sx(s, v); if (d == F64) return ud(sgn(s) ? (double)x : (double)(uint64_t)x); float f = sgn(s) ? (float)x : (float)(uint64_t)x; return d == F32 ? uf(f) : stf(d, sgn(s) ? (double)x : (double)(uint64_t)x); }
  return zx(d, sx(s, v)); }
static void set(struct th *t, struct opnd *o, uint64_t v) { if (o->k == K_REG) t->R[o->r] = v; }
enum { RUN, WBAR, WWARP, DONE };
static void run_thread(struct th *t) {
  for (;;) { if (t->pc >= FN->n) { t->st = DONE; return; } struct ins *i = &FN->I[t->pc]; nins++; if (RN->err) { t->st = DONE; return; }
    if (i->pred >= 0 && (!!t->R[i->pred]) == i->pneg) { t->pc++; continue; }
    struct opnd *o = i->o; int T = i->t; uint64_t a = i->nop > 1 ? get(t, o + 1) : 0, b = i->nop > 2 ? get(t, o + 2) : 0, c = i->nop > 3 ? get(t, o + 3) : 0; t->pc++;
    switch (i->code) {
    case MOV: if (o[0].k == K_VEC) { int n = o[0].n, bits = 8 * tsz[T] / n; for (int k = 0; k < n; k++) if (o[0].v[k] >= 0) t->R[o[0].v[k]] = a >> (k * bits) & (bits == 64 ? ~0ull : (1ull << bits) - 1); } else if (o[1].k == K_VEC) { int n = o[1].n, bits = 8 * tsz[T] / n; uint64_t v = 0; for (int k = 0; k < n; k++) v |= ((o[1].v[k] < 0 ? o[1].vi[k] : t->R[o[1].v[k]]) & ((1ull << bits) - 1)) << (k * bits); set(t, o, v); } else set(t, o, zx(T, a)); break;
    case LD: case LDU: { int n = o[0].k == K_VEC ? o[0].n : 1; char *p = addr(t, i, o + 1, n * tsz[T], 0); if (!p) break; for (int k = 0; k < n; k++) { uint64_t v; ldst(p + k * tsz[T], &v, tsz[T], 0); if (sgn(T)) v = zx(tsz[T] < 4 ? S32 : T, sx(T, v)); if (n == 1 && o[0].k == K_REG) t->R[o[0].r] = v; else if (o[0].v[k] >= 0) t->R[o[0].v[k]] = v; } break; }
    case ST: { int n = o[1].k == K_VEC ? o[1].n : 1; char *p = addr(t, i, o, n * tsz[T], 1); if (!p) break; for (int k = 0; k < n; k++) { uint64_t v = o[1].k == K_VEC ? (o[1].v[k] < 0 ? o[1].vi[k] : t->R[o[1].v[k]]) : a; ldst(p + k * tsz[T], &v, tsz[T], 1); } break; }
    case CVTA: if (has(i, "shared")) a = has(i, "to") ? a - (uint64_t)SH : a + (uint64_t)SH; else if (has(i, "local") && !has(i, "to") && o[1].k == K_SYM) a = get(t, o + 1); set(t, o, a); break;
    case ADD: case SUB: case MUL: case MAD: case FMA_: case DIV: case REM: case MIN_: case MAX_: set(t, o, arith(i, i->code, T, a, b, c)); break;
    case NEG: set(t, o, isf(T) ? (T == F16X2 || T == BF16X2 ? a ^ 0x80008000u : T == F64 ? a ^ 1ull << 63 : a ^ 1ull << (8 * tsz[T] - 1)) : zx(T, -sx(T, a))); break;
    case ABS: set(t, o, isf(T) ? (T == F64 ? a & ~(1ull << 63) : T == F32 ? a & 0x7fffffff : T == F16X2 || T == BF16X2 ? a & 0x7fff7fff : a & 0x7fff) : zx(T, llabs(sx(T, a)))); break;
    case AND: set(t, o, T == PRED ? a && b : a & b); break; case OR: set(t, o, T == PRED ? a || b : a | b); break; case XOR: set(t, o, T == PRED ? !a != !b : a ^ b); break; case NOT: set(t, o, T == PRED ? !a : zx(T, ~a)); break;
    case SHL: { unsigned n = (uint32_t)b; set(t, o, n >= 8u * tsz[T] ? 0 : zx(T, a << n)); break; } case SHR: { unsigned n = (uint32_t)b, w = 8 * tsz[T]; if (sgn(T)) set(t, o, zx(T, sx(T, a) >> (n >= w ? w - 1 : n))); else set(t, o, n >= w ? 0 : zx(T, zx(T, a) >> n)); break; }
    case SETP: { int r = cmp(i, T, a, b); if (i->nop > 3) { int q = !!c; r = has(i, "and") ? r && q : has(i, "or") ? r || q : (!r) != (!q); } t->R[o[0].r] = r; if (o[0].r2 >= 0) t->R[o[0].r2] = !r; break; }
    case SELP: set(t, o, c ? zx(T, a) : zx(T, b)); break;
    case CVT: set(t, o, (T == F16X2 || T == BF16X2) ? (stf(T == F16X2 ? F16 : BF16, ldf(i->t2, a)) << 16 | stf(T == F16X2 ? F16 : BF16, ldf(i->t2, b))) : cvt(i, T, i->t2, a)); break;
    case BRA: t->pc = i->target; break; case RET: case EXIT: t->st = DONE; return;
    case BAR: case BARRIER: t->st = WBAR; return;
    case SHFL: case VOTE: case ACTMASK: t->pc--; t->st = WWARP; return;
    case ATOM: case RED: { int ao = i->code == ATOM ? 1 : 0; struct opnd *v = o + ao + 1; char *p = addr(t, i, o + ao, tsz[T], 0); if (!p) break; uint64_t old, nv, x = get(t, v); ldst(p, &old, tsz[T], 0); nv = has(i, "add") ? arith(i, ADD, T, old, x, 0) : has(i, "max") ? arith(i, MAX_, T, old, x, 0) : has(i, "min") ? arith(i, MIN_, T, old, x, 0) : has(i, "exch") ? x : has(i, "and") ? (old & x) : has(i, "or") ? (old | x) : has(i, "xor") ? (old ^ x) : has(i, "cas") ? (zx(T, old) == zx(T, x) ? get(t, v + 1) : old) : old; ldst(p, &nv, tsz[T], 1); if (ao) set(t, o, old); break; }
    case EX2: set(t, o, stf(T, exp2(ldf(T, a)))); break; case LG2: set(t, o, stf(T, log2(ldf(T, a)))); break; case RCP: set(t, o, stf(T, 1 / ldf(T, a))); break; case RSQRT: set(t, o, stf(T, 1 / sqrt(ldf(T, a)))); break; case SQRT_: set(t, o, stf(T, sqrt(ldf(T, a)))); break; case SIN_: set(t, o, stf(T, sin(ldf(T, a)))); break; case COS_: set(t, o, stf(T, cos(ldf(T, a)))); break; case TANH_: set(t, o, stf(T, tanh(ldf(T, a)))); break;
    case COPYSIGN: set(t, o, stf(T, copysign(ldf(T, b), ldf(T, a)))); break; case POPC: set(t, o, __builtin_popcountll(zx(T, a))); break; case CLZ: set(t, o, a ? __builtin_clzll(a) - (64 - 8 * tsz[T]) : 8 * tsz[T]); break;
    case BFIND: { uint64_t v = sgn(T) && sx(T, a) < 0 ? zx(T, ~a) : zx(T, a); int r = v ? 63 - __builtin_clzll(v) : -1; if (has(i, "shiftamt") && r >= 0) r = 8 * tsz[T] - 1 - r; set(t, o, (uint32_t)r); break; }
    case BREV: { uint64_t r = 0; int w = 8 * tsz[T]; for (int k = 0; k < w; k++) r |= (a >> k & 1) << (w - 1 - k); set(t, o, r); break; }
    case BFE: { unsigned pos = b & 255, len = c & 255, w = 8 * tsz[T]; uint64_t v = pos >= w ? 0 : zx(T, a) >> pos; if (len < w) { uint64_t mk = (1ull << len) - 1; v &= mk; if (sgn(T) && len && v >> (len - 1) & 1) v |= ~mk; } set(t, o, zx(T, v)); break; }
    case BFI: { uint64_t d = get(t, o + 4); unsigned pos = c & 255, len = d & 255; uint64_t mk = (len >= 64 ? ~0ull : (1ull << len) - 1) << pos; set(t, o, zx(T, (b & ~mk) | (a << pos & mk))); break; }
    case PRMT: { uint64_t v = (a & 0xffffffff) | b << 32, r = 0; for (int k = 0; k < 4; k++) { int s = c >> (4 * k) & 15; uint64_t y = v >> (8 * (s & 7)) & 255; if (s & 8) y = y & 128 ? 255 : 0; r |= y << (8 * k); } set(t, o, r); break; }
    case SHF: { unsigned n = has(i, "wrap") ? c & 31 : (uint32_t)c > 32 ? 32 : c; uint64_t v = (a & 0xffffffff) | b << 32; set(t, o, has(i, "l") ? (uint32_t)(v << n >> 32) : (uint32_t)(v >> n)); break; }
    case MEMBAR: case FENCE: break;
    default: fail(i, "opcode not implemented", 0); } } }
static void warp_op(struct th *W, int base, struct ins *i, unsigned set_) {   /* all lanes of set_ are at the same instruction */
  uint64_t v[32], bb[32], cc[32]; for (int l = 0; l < 32; l++) if (set_ >> l & 1) { CURT = base + l; v[l] = i->nop > 1 ? get(W + l, i->o + 1) : 0; bb[l] = i->nop > 2 ? get(W + l, i->o + 2) : 0; cc[l] = i->nop > 3 ? get(W + l, i->o + 3) : 0; }
  unsigned bal = 0; for (int l = 0; l < 32; l++) if (set_ >> l & 1 && v[l]) bal |= 1u << l;
  for (int l = 0; l < 32; l++) if (set_ >> l & 1) { struct th *t = W + l;
    if (i->code == ACTMASK) set(t, i->o, set_); else if (i->code == VOTE) set(t, i->o, has(i, "ballot") ? bal : has(i, "any") ? bal != 0 : has(i, "all") ? bal == set_ : (bal == set_ || !bal));
    else { unsigned b = bb[l] & 31, cv = cc[l] & 31, m = cc[l] >> 8 & 31; int mx = (l & m) | (cv & ~m), mn = l & m, j, p; if (has(i, "up")) { j = l - (int)b; p = j >= mx; } else if (has(i, "down")) { j = l + b; p = j <= mx; } else if (has(i, "bfly")) { j = l ^ b; p = j <= mx; } else { j = mn | (b & ~m); p = j <= mx; } if (!p) j = l; set(t, i->o, (set_ >> j & 1) ? v[j] : 0xdeadbeef); if (i->o[0].r2 >= 0) t->R[i->o[0].r2] = p; }
    t->pc++; t->st = RUN; } }
int ptx_run_interim(struct ptx_fn *f, struct ptx_run *r) {
  int n = r->b[0] * r->b[1] * r->b[2]; RN = r; FN = f; size_t dyn = (f->shsize + 15) & ~15ul; SHN = dyn + r->dynsmem; SH = malloc(SHN + 16); SD = malloc((SHN + 16) * sizeof *SD); struct th *T = calloc(n, sizeof *T); uint64_t *regs = malloc((size_t)n * (f->nreg + 1) * 8); char *loc = malloc((size_t)n * (f->locsize + 16));
  for (bid3[2] = 0; bid3[2] < r->g[2]; bid3[2]++) for (bid3[1] = 0; bid3[1] < r->g[1]; bid3[1]++) for (bid3[0] = 0; bid3[0] < r->g[0] && !r->err; bid3[0]++) {
    memset(SH, 0xFF, SHN); memset(SD, 0, SHN * sizeof *SD); EP = 1; memset(regs, 0xCD, (size_t)n * (f->nreg + 1) * 8); int live = n;
    for (int i = 0; i < n; i++) { T[i].R = regs + (size_t)i * (f->nreg + 1); T[i].pc = 0; T[i].st = RUN; T[i].loc = loc + (size_t)i * (f->locsize + 16); }
    while (live && !r->err) { int ran = 0, bars = 0; 
      for (int q = 0; q < n; q += 32) { int wq = r->rev ? (n - 1) / 32 * 32 - q : q, e = wq + 32 < n ? wq + 32 : n;   /* warp-greedy */
        for (int again = 1; again;) { again = 0;
          for (int i = wq; i < e; i++) if (T[i].st == RUN) { CURT = i; tid3[0] = i % r->b[0]; tid3[1] = i / r->b[0] % r->b[1]; tid3[2] = i / (r->b[0] * r->b[1]); run_thread(&T[i]); ran = 1; if (T[i].st == DONE) live--; }
          for (int i = wq; i < e; i++) if (T[i].st == WWARP) { struct ins *I = &f->I[T[i].pc]; CURT = i; unsigned need = I->code == ACTMASK ? 0 : (unsigned)get(&T[i], &I->o[I->nop - 1]), at = 0; for (int l = 0; l < e - wq; l++) { if (T[wq + l].st == WWARP && T[wq + l].pc == T[i].pc) at |= 1u << l; else if (T[wq + l].st == DONE) need &= ~(1u << l); } if (e - wq < 32) need &= (1u << (e - wq)) - 1; if (I->code == ACTMASK) need = at; if ((at & need) == need) { warp_op(T + wq, wq, I, need); again = 1; ran = 1; } } } }
      for (int i = 0; i < n; i++) bars += T[i].st == WBAR;
      if (live && bars == live) { int pc = -1; for (int i = 0; i < n; i++) if (T[i].st == WBAR) { if (pc >= 0 && pc != T[i].pc) { CURT = i; fail(&f->I[T[i].pc - 1], "threads met at different barriers", 0); } pc = T[i].pc; T[i].st = RUN; } EP++; ran = 1; }
      if (live && !ran) { fprintf(stderr, "ptx: %s: deadlock: %d live, %d at barrier\n", f->name, live, bars); r->err = 702; } } }
  free(SH); free(SD); free(T); free(regs); free(loc); r->ninstr = nins; return r->err; }
